//! A client's connection, seen from the server.

mod inbox;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Result};
use inbox::Inbox;
use rustix::event::epoll::EventFlags;

use crate::budget::{Budgets, Charge, Granted, Reader};
use crate::count::Counted;
use crate::frame;
use crate::hello::{Greeting, SPOKEN, agree};
use crate::outlet::Outlet;
use crate::reactor::{Source, User, Watch};
use crate::server::{Conversation, HandedOver, Service};
use crate::slots::Taken;
use crate::{Hello, Peer, Reply, VERSION, Welcome, fitted};

/// A peer that connects and says nothing is cut off after this.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// A peer that does not read its answer is cut off after this.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// Refused connections that have a line of the log each second: anybody can make them.
const LINES: u32 = 20;

/// The connection of one client, from its greeting to its end.
pub(crate) struct Caller {
    watch: Watch,
    outlet: Outlet,
    inbox: Mutex<Inbox>,
    /// What a frame under way, the open call or an answer that is not read yet makes this process hold.
    charge: Charge,
    /// When the reactor is to look for what is late.
    alarm: Mutex<Option<Instant>>,
    peer: Peer,
    /// Whose turn it takes.
    user: User,
    service: Arc<dyn Service>,
    greeted: OnceLock<Greeted>,
    /// A call is open.
    busy: AtomicBool,
    /// Somebody else answers; here the connection is only watched for its end.
    elsewhere: AtomicBool,
    ended: AtomicBool,
    slots: OnceLock<Taken>,
    _open: Counted,
}

struct Greeted {
    version: u16,
    conversation: Arc<dyn Conversation>,
}

impl Caller {
    /// Takes a new connection in. Users who come in by different entrances are different ones.
    pub fn admit(
        watch: &Watch,
        stream: UnixStream,
        peer: Peer,
        service: Arc<dyn Service>,
        open: Counted,
        budgets: &Budgets,
        entrance: u32,
    ) -> io::Result<Arc<Self>> {
        let caller = watch.adopt(|watch| Self {
            watch,
            outlet: Outlet::new(stream.into(), 0),
            inbox: Mutex::new(Inbox::new()),
            charge: budgets.of(peer.uid),
            alarm: Mutex::new(None),
            peer,
            user: u64::from(entrance) << 32 | u64::from(peer.uid),
            service,
            greeted: OnceLock::new(),
            busy: AtomicBool::new(false),
            elsewhere: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            slots: OnceLock::new(),
            _open: open,
        });
        caller.arm(Instant::now() + HELLO_WITHIN);
        let watched = caller.watch.add(0, caller.outlet.stream());
        watched.inspect_err(|_| caller.end())?;
        Ok(caller)
    }

    /// Says why, if the peer can still hear it, and hangs up.
    pub fn refuse(&self, error: Error) {
        if may_log() {
            tracing::warn!(peer = %self.peer, %error, "a connection is refused");
        }
        match self.greeted.get() {
            None => self.send(|out| frame::encode(&Greeting::Refused(error), out)),
            Some(_) => self.answer(&Reply::failed(error)),
        }
        self.end();
    }

    /// Holds its slots until it is dropped.
    pub fn keep(&self, slots: Taken) {
        let _ = self.slots.set(slots);
    }

    /// Whether no call is open or waits here, no answer is on its way, and nobody else serves the connection.
    pub fn is_idle(&self) -> bool {
        let waits = || {
            let inbox = self.inbox.try_lock();
            inbox.is_none_or(|inbox| inbox.is_waiting())
        };
        !self.busy.load(Ordering::Acquire)
            && !self.elsewhere.load(Ordering::Acquire)
            && self.outlet.waiting_since().is_none()
            && !waits()
    }

    /// Closes the connection because another user needs its slot. A client that waits for nothing connects again.
    pub fn evict(&self) {
        let waits = self.greeted.get().is_none() || self.busy.load(Ordering::Acquire);
        if waits && !self.elsewhere.load(Ordering::Acquire) {
            let message = "another user needs the connection, of which this one has the most";
            return self.refuse(Error::pool(Kind::Busy, message));
        }
        if may_log() {
            tracing::warn!(peer = %self.peer, "closed: another user needs the connection");
        }
        self.end();
    }

    /// Answers the open call; from any thread.
    pub fn answer(&self, reply: &Reply) {
        let version = self.version();
        // Before the peer can have read it: its next call may come at once.
        self.busy.store(false, Ordering::Release);
        self.send(|out| fitted::encode_reply(version, reply, out));
    }

    fn send(&self, encode: impl FnOnce(&mut Vec<u8>) -> Result<()>) {
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        let frame = |out: &mut Vec<u8>| {
            if let Err(error) = encode(out) {
                tracing::error!(%error, "an answer cannot be written down");
            }
        };
        // Nothing more is read from a peer until it has read this, or some of it could not be counted.
        let sent = self
            .outlet
            .send_with(&self.watch, EventFlags::OUT, frame, |left| {
                (left, self.charge.set(left))
            });
        match sent {
            Ok((left, granted)) => {
                granted.resume();
                if left > 0 {
                    self.arm(Instant::now() + READ_WITHIN);
                }
            }
            Err(_) => self.end(),
        }
    }

    /// Has the reactor look at that time, if it would not before.
    fn arm(&self, at: Instant) {
        let mut alarm = self.alarm.lock();
        if alarm.is_none_or(|set| at < set) {
            *alarm = Some(at);
            drop(alarm);
            self.watch.wake_at(at);
        }
    }

    fn greet(&self, hello: &Hello) -> Result<()> {
        let version = agree(&SPOKEN, &hello.versions())?;
        let conversation = self.service.open(self.peer, hello)?;
        tracing::debug!(peer = %self.peer, program = hello.program, version, "connected");
        let welcome = Welcome {
            version,
            boot: self.service.boot(),
            pin_login: self.service.pin_login(),
            read_only: self.service.read_only(),
            hands_over: Some(self.service.hands_over()),
        };
        let greeted = Greeted {
            version,
            conversation,
        };
        // Only the reactor's thread comes here, and only once.
        let _ = self.greeted.set(greeted);
        self.send(|out| frame::encode(&Greeting::Welcome(welcome), out));
        Ok(())
    }

    /// Reads no more, and gives the socket away.
    pub fn hand_over(self: &Arc<Self>, pass: impl FnOnce(HandedOver) -> Result<()>) -> Result<()> {
        let failed = |error| Error::pool(Kind::Environment, format!("cannot hand over: {error}"));
        let stream = self.stream();
        // Its end is still told (epoll_ctl(2), EPOLLHUP). What comes next is not for this thread.
        self.watch
            .set(0, stream, EventFlags::empty())
            .map_err(failed)?;
        self.elsewhere.store(true, Ordering::Release);
        pass(HandedOver::new(self)).inspect_err(|_| {
            self.elsewhere.store(false, Ordering::Release);
            if self.watch.set(0, stream, EventFlags::IN).is_err() {
                self.end();
            }
        })
    }

    /// The socket.
    pub fn stream(&self) -> &UnixStream {
        self.outlet.stream()
    }

    /// The frame version that is spoken, from the greeting on.
    pub fn version(&self) -> u16 {
        let greeted = self.greeted.get();
        greeted.map_or(VERSION, |greeted| greeted.version)
    }

    /// Whether the connection is closed.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Closes the connection.
    pub fn end(&self) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        self.watch.remove(self.outlet.stream());
        // An answer on its way keeps this in memory for a while; the peer is not to wait for that.
        let _ = self.outlet.stream().shutdown(std::net::Shutdown::Both);
        self.watch.end();
        if let Some(greeted) = self.greeted.get() {
            greeted.conversation.closed();
        }
    }
}

/// Whether there may be another line in the log about what anybody can do again and again.
fn may_log() -> bool {
    static WRITTEN: Mutex<LogLines> = Mutex::new(LogLines(None));
    WRITTEN.lock().may_add(Instant::now())
}

/// Lines of the log within one second: when it began, and how many.
struct LogLines(Option<(Instant, u32)>);

impl LogLines {
    fn may_add(&mut self, now: Instant) -> bool {
        let is_same_second =
            |since: Instant| now.saturating_duration_since(since) < Duration::from_secs(1);
        let running = self.0.filter(|(since, _)| is_same_second(*since));
        let (since, lines) = running.unwrap_or((now, 0));
        self.0 = Some((since, lines.saturating_add(1)));
        lines < LINES
    }
}

impl Reader for Caller {
    fn pause(&self) {
        let _ = self.watch.set(0, self.outlet.stream(), EventFlags::empty());
    }

    fn resume(&self) {
        // It can be written to at once: the reactor goes on with what was read before.
        let flags = EventFlags::IN | EventFlags::OUT;
        let resumed = self.watch.set(0, self.outlet.stream(), flags);
        if resumed.is_err() {
            self.end();
        }
    }
}

impl Source for Caller {
    fn user(&self) -> Option<User> {
        Some(self.user)
    }

    fn ready(self: Arc<Self>, _: u16, ready: EventFlags, scratch: &mut [u8]) {
        let mut goes_on = ready.intersects(!EventFlags::OUT);
        let mut broken = self.elsewhere.load(Ordering::Acquire);
        if ready.contains(EventFlags::OUT) {
            match self.outlet.flush(&self.watch, || self.charge.set(0)) {
                Ok(flushed) => {
                    goes_on = true;
                    flushed.into_iter().for_each(Granted::resume);
                }
                Err(_) => broken = true,
            }
        }
        if broken {
            self.end();
        } else if goes_on {
            self.read(ready, scratch);
        }
    }

    fn expired(self: Arc<Self>, now: Instant) -> Option<Instant> {
        if self.greeted.get().is_none() {
            tracing::debug!(peer = %self.peer, "no greeting in time; closed");
            self.end();
            return None;
        }
        let reads = self.outlet.waiting_since().map(|since| {
            let until = since + READ_WITHIN;
            (until, "does not read its answer; closed")
        });
        let sends = self
            .rest_until()
            .map(|until| (until, "sends a call too slowly; closed"));
        let next = [sends, reads].into_iter().flatten().min();
        let mut alarm = self.alarm.lock();
        *alarm = None;
        let (until, why) = next?;
        if until > now {
            *alarm = Some(until);
            return Some(until);
        }
        drop(alarm);
        if may_log() {
            tracing::warn!(peer = %self.peer, why);
        }
        self.end();
        None
    }

    fn abandoned(self: Arc<Self>) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
