//! Listeners: each accepted connection becomes a [`Caller`].

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hsmux_token::{Error, Kind, Result};
use rustix::event::epoll::EventFlags;
use rustix::net::{SocketFlags, accept_with};

use crate::Peer;
use crate::budget::Budgets;
use crate::caller::Caller;
use crate::count::Count;
use crate::reactor::{Reactor, Source, Watch};
use crate::server::Service;
use crate::slots::{self, AllSlots, UserSlots};

/// The number of all listeners together: a user has one share, whichever listener it connects to.
const SOCKETS: u32 = 0;

/// How long a listener pauses when the process has no descriptors left.
const PAUSE: Duration = Duration::from_secs(1);

impl Reactor {
    /// Serves a listener until the answer is dropped. Open connections outlive it.
    pub fn listen(&self, listener: UnixListener, service: Arc<dyn Service>) -> Result<Listening> {
        let failed =
            |error: io::Error| Error::pool(Kind::Environment, format!("cannot listen: {error}"));
        listener.set_nonblocking(true).map_err(failed)?;
        let acceptor = self.adopt(|watch| Acceptor {
            watch,
            listener,
            service,
            open: Count::default(),
            slots: UserSlots::default(),
            all_slots: self.slots(),
            budgets: self.budgets(),
        });
        let listening = Listening(acceptor);
        let acceptor = &listening.0;
        acceptor.watch.add(0, &acceptor.listener).map_err(failed)?;
        Ok(listening)
    }
}

impl Reactor {
    /// Serves connections that other code makes, up to `most` at once.
    pub fn entrance(&self, service: Arc<dyn Service>, most: usize) -> Entrance {
        static LAST: AtomicU32 = AtomicU32::new(SOCKETS);
        Entrance(self.adopt(|watch| Within {
            watch,
            service,
            open: Count::default(),
            most,
            budgets: Budgets::default(),
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
        }))
    }
}

/// Takes connections that other code makes. Open connections outlive it.
pub struct Entrance(Arc<Within>);

struct Within {
    watch: Watch,
    service: Arc<dyn Service>,
    open: Count,
    most: usize,
    budgets: Budgets,
    number: u32,
}

impl Entrance {
    /// Serves a connection, which says hello as any other.
    pub fn take(&self, stream: UnixStream) -> io::Result<Admitted> {
        let within = &self.0;
        if within.open.get() >= within.most {
            let message = format!(
                "{} connections are open, which is all that may",
                within.most
            );
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }
        stream.set_nonblocking(true)?;
        let service = Arc::clone(&within.service);
        let peer = Peer::of(&stream)?;
        // All have this process's own user id. The caller gives each host its share.
        let open = within.open.one();
        let (watch, budgets) = (&within.watch, &within.budgets);
        let caller = Caller::admit(watch, stream, peer, service, open, budgets, within.number)?;
        Ok(Admitted(Arc::downgrade(&caller)))
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.0.open.get()
    }
}

/// A connection that an [`Entrance`] has taken.
#[derive(Debug)]
pub struct Admitted(Weak<Caller>);

impl Admitted {
    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        let caller = self.0.upgrade();
        caller.is_some_and(|caller| !caller.has_ended())
    }

    /// Closes it, whoever has a descriptor of the other end.
    pub fn end(&self) {
        if let Some(caller) = self.0.upgrade() {
            caller.end();
        }
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
    slots: UserSlots,
    /// Slots of all listeners together.
    all_slots: AllSlots,
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
            let (watch, budgets) = (&self.watch, &self.budgets);
            let open = self.open.one();
            let caller = Caller::admit(watch, stream, peer, service, open, budgets, SOCKETS);
            Ok((caller?, peer.account))
        });
        let (caller, account) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return tracing::warn!(%error, "a connection is dropped"),
        };
        match slots::take(&caller, account, &self.slots, &self.all_slots) {
            Ok(slots) => caller.keep(slots),
            Err(error) => caller.refuse(error),
        }
    }
}
