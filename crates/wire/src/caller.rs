//! A client's connection, at the server's end.

mod inbox;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, LogLines, Result};
use inbox::Inbox;
use rustix::event::epoll::EventFlags;

use crate::budget::{Budgets, Charge, Granted, Reader};
use crate::count::Counted;
use crate::frame;
use crate::hello::{Greeting, SPOKEN, agree};
use crate::outlet::Outlet;
use crate::reactor::{Source, User, Watch};
use crate::server::{Conversation, HandedOver, Service};
use crate::slots::TakenSlots;
use crate::{Hello, Peer, Reply, VERSION, Welcome, fitted};

/// The connection of a peer that sends no greeting is closed after this.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// The connection of a peer that does not read its answer is closed after this.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// The connection of one client, from its greeting to its end.
pub(crate) struct Caller {
    watch: Watch,
    outlet: Outlet,
    inbox: Mutex<Inbox>,
    /// Bytes held for an incomplete frame, the open call or an unread answer.
    charge: Charge,
    /// When the reactor checks the deadlines next.
    alarm: Mutex<Option<Instant>>,
    peer: Peer,
    /// The user whose share of the reactor's time it uses.
    user: User,
    service: Arc<dyn Service>,
    greeted: OnceLock<Greeted>,
    /// A call is open.
    busy: AtomicBool,
    /// A worker answers. Here the connection is only watched for its end.
    elsewhere: AtomicBool,
    ended: AtomicBool,
    slots: OnceLock<TakenSlots>,
    _open: Counted,
}

struct Greeted {
    version: u16,
    conversation: Arc<dyn Conversation>,
}

impl Caller {
    /// Takes a new connection. One account counts as another user at another entrance.
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
            charge: budgets.of(peer.account),
            alarm: Mutex::new(None),
            peer,
            user: u64::from(entrance) << 32 | u64::from(peer.account),
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

    /// Sends the error, if the peer still reads, and closes the connection.
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
    pub fn keep(&self, slots: TakenSlots) {
        let _ = self.slots.set(slots);
    }

    /// Whether the connection is unused: no open or waiting call, no unread answer, and no worker that serves it.
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
        // Before the answer is sent: the peer's next call may come at once.
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
        // The connection is paused until the peer has read this: otherwise further answers would not be counted.
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

    /// Makes the reactor check the deadlines at that time, unless it checks them earlier.
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

    /// Stops reading, and gives the socket to `pass`.
    pub fn hand_over(self: &Arc<Self>, pass: impl FnOnce(HandedOver) -> Result<()>) -> Result<()> {
        let failed = |error| Error::pool(Kind::Environment, format!("cannot hand over: {error}"));
        let stream = self.stream();
        // The end is still reported (epoll_ctl(2), EPOLLHUP). Later bytes are for the worker.
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

    /// The frame version agreed in the greeting.
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
        // An open call's answer may keep this in memory for a while. The peer must see the end now.
        let _ = self.outlet.stream().shutdown(std::net::Shutdown::Both);
        self.watch.end();
        if let Some(greeted) = self.greeted.get() {
            greeted.conversation.closed();
        }
    }
}

/// Counts a log line about an event that any peer can repeat. Answers whether it may be written.
fn may_log() -> bool {
    static WRITTEN: LogLines = LogLines::new(LogLines::USUAL);
    WRITTEN.may_add()
}

impl Reader for Caller {
    fn pause(&self) {
        let _ = self.watch.set(0, self.outlet.stream(), EventFlags::empty());
    }

    fn resume(&self) {
        // OUT is ready at once: it makes the reactor continue with the bytes that were read before.
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
        // First of all: another thread that arms from here on sets a time.
        *self.alarm.lock() = None;
        let reads = self.outlet.waiting_since().map(|since| {
            let until = since + READ_WITHIN;
            (until, "does not read its answer; closed")
        });
        let sends = self
            .rest_until()
            .map(|until| (until, "sends a call too slowly; closed"));
        let (until, why) = [sends, reads].into_iter().flatten().min()?;
        if until > now {
            let mut alarm = self.alarm.lock();
            let sooner = alarm.is_none_or(|set| until < set);
            return sooner.then(|| *alarm.insert(until));
        }
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
