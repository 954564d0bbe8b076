//! Listeners: who connects becomes a [`Caller`].

use std::collections::HashMap;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Result};
use rustix::event::epoll::EventFlags;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Resource, getrlimit};

use crate::Peer;
use crate::budget::Budgets;
use crate::caller::Caller;
use crate::count::Count;
use crate::reactor::{Reactor, Source, Watch};
use crate::server::Service;

/// Connections that one listener holds open at once.
const MAX_CALLERS: usize = 8192;

/// Connections that one user holds open at once: half of a listener's, and of this process's files.
fn most_of_user() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    let half = files.map_or(usize::MAX, |files| {
        usize::try_from(files / 2).unwrap_or(usize::MAX)
    });
    half.min(MAX_CALLERS / 2)
}

/// The entrance of all sockets: a user has one share, whichever of them it connects to.
const SOCKETS: u32 = 0;

/// How long a listener pauses when the process has no descriptors left.
const PAUSE: Duration = Duration::from_secs(1);

impl Reactor {
    /// Serves a listener until the answer is dropped; connections that are open then stay.
    pub fn listen(&self, listener: UnixListener, service: Arc<dyn Service>) -> Result<Listening> {
        let failed =
            |error: io::Error| Error::pool(Kind::Environment, format!("cannot listen: {error}"));
        listener.set_nonblocking(true).map_err(failed)?;
        let acceptor = self.adopt(|watch| Acceptor {
            watch,
            listener,
            service,
            open: Count::default(),
            users: Mutex::default(),
            budgets: self.budgets(),
        });
        let listening = Listening(acceptor);
        let acceptor = &listening.0;
        acceptor.watch.add(0, &acceptor.listener).map_err(failed)?;
        Ok(listening)
    }
}

impl Reactor {
    /// Serves connections that are made elsewhere.
    pub fn entrance(&self, service: Arc<dyn Service>) -> Entrance {
        static LAST: AtomicU32 = AtomicU32::new(SOCKETS);
        Entrance(self.adopt(|watch| Within {
            watch,
            service,
            open: Count::default(),
            budgets: Budgets::default(),
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
        }))
    }
}

/// Where connections come in that are made elsewhere; those that are open stay when it is dropped.
pub struct Entrance(Arc<Within>);

struct Within {
    watch: Watch,
    service: Arc<dyn Service>,
    open: Count,
    budgets: Budgets,
    number: u32,
}

impl Entrance {
    /// Serves a connection, which says hello as any other.
    pub fn take(&self, stream: UnixStream) -> io::Result<()> {
        let within = &self.0;
        stream.set_nonblocking(true)?;
        let service = Arc::clone(&within.service);
        let peer = Peer::of(&stream)?;
        // All are of one user, this process's own: whoever brings them gives each host its share.
        let open = [within.open.one(), Count::default().one()];
        let (watch, budgets) = (&within.watch, &within.budgets);
        Caller::admit(watch, stream, peer, service, open, budgets, within.number).map(drop)
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.0.open.get()
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.0.watch.end();
    }
}

impl Source for Within {
    fn ready(self: Arc<Self>, _: u16, _: EventFlags, _: &mut [u8]) {}

    fn expired(self: Arc<Self>, _: Instant) -> Option<Instant> {
        None
    }

    fn abandoned(self: Arc<Self>) {}
}

/// A listener in service; dropping it closes the socket (its file stays).
pub struct Listening(Arc<Acceptor>);

impl Listening {
    /// Open connections.
    pub fn connections(&self) -> usize {
        self.0.open.get()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.watch.remove(&self.0.listener);
        self.0.watch.end();
    }
}

struct Acceptor {
    watch: Watch,
    listener: UnixListener,
    service: Arc<dyn Service>,
    open: Count,
    /// Those of each user.
    users: Mutex<HashMap<u32, Count>>,
    budgets: Budgets,
}

impl Source for Acceptor {
    fn ready(self: Arc<Self>, _: u16, _: EventFlags, _: &mut [u8]) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.listener, flags) {
            Ok(stream) => self.admit(stream.into()),
            Err(errno) if errno == rustix::io::Errno::AGAIN => {}
            Err(error) => {
                // Most likely out of descriptors: the listener stays ready, and would keep the
                // thread busy for nothing.
                tracing::warn!(%error, "cannot accept a connection; the listener pauses");
                let _ = self.watch.set(0, &self.listener, EventFlags::empty());
                self.watch.wake_at(Instant::now() + PAUSE);
            }
        }
    }

    fn expired(self: Arc<Self>, _: Instant) -> Option<Instant> {
        let _ = self.watch.set(0, &self.listener, EventFlags::IN);
        None
    }

    fn abandoned(self: Arc<Self>) {}
}

impl Acceptor {
    fn admit(&self, stream: UnixStream) {
        let service = Arc::clone(&self.service);
        let admitted = Peer::of(&stream).and_then(|peer| {
            let users = self.of_user(peer.uid);
            let open = [self.open.one(), users.one()];
            let (watch, budgets) = (&self.watch, &self.budgets);
            let caller = Caller::admit(watch, stream, peer, service, open, budgets, SOCKETS);
            Ok((caller?, users.get()))
        });
        let (caller, of_user) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return tracing::warn!(%error, "a connection is dropped"),
        };
        let most_of_user = most_of_user();
        if self.open.get() > MAX_CALLERS {
            let message = format!("{MAX_CALLERS} connections are open, which is all that may");
            caller.refuse(Error::pool(Kind::Busy, message));
        } else if of_user > most_of_user {
            let message = format!("{most_of_user} connections of this user are open, its share");
            caller.refuse(Error::pool(Kind::Busy, message));
        }
    }

    /// How many connections a user has.
    fn of_user(&self, uid: u32) -> Count {
        let mut users = self.users.lock();
        users.retain(|_, count| count.get() > 0);
        users.entry(uid).or_default().clone()
    }
}
