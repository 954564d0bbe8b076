//! A client's connection, seen from the server.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Result};
use rustix::event::epoll::EventFlags;
use zeroize::Zeroize;

use crate::count::Counted;
use crate::frame::{self, FrameBuffer, MAX_FRAME, MAX_GREETING};
use crate::half::{Half, Halves, Reader};
use crate::hello::{Greeting, SPOKEN, agree};
use crate::outlet::Outlet;
use crate::reactor::{Source, Watch};
use crate::server::{Answerer, Conversation, HandedOver, Service};
use crate::{Answer, Hello, Peer, Reply, VERSION, Welcome, socket};

/// A peer that connects and says nothing is cut off after this.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// A peer that does not read its answer is cut off after this.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// A peer that sends no more of a long frame, for which others may wait, is cut off after this.
const GOES_ON_WITHIN: Duration = Duration::from_secs(30);

/// The connection of one client, from its greeting to its end.
pub(crate) struct Caller {
    watch: Watch,
    outlet: Outlet,
    inbox: Mutex<(FrameBuffer, Half)>,
    peer: Peer,
    service: Arc<dyn Service>,
    greeted: OnceLock<Greeted>,
    /// A call is open.
    busy: AtomicBool,
    /// Somebody else answers; here the connection is only watched for its end.
    elsewhere: AtomicBool,
    ended: AtomicBool,
    _open: Counted,
}

struct Greeted {
    version: u16,
    conversation: Arc<dyn Conversation>,
}

impl Caller {
    /// Takes a new connection in.
    pub fn admit(
        watch: &Watch,
        stream: UnixStream,
        service: Arc<dyn Service>,
        open: Counted,
        halves: &Halves,
    ) -> io::Result<Arc<Self>> {
        let peer = Peer::of(&stream)?;
        let caller = watch.adopt(|watch| Self {
            watch,
            outlet: Outlet::new(stream.into(), 0),
            inbox: Mutex::new((FrameBuffer::default(), halves.of(peer.uid))),
            peer,
            service,
            greeted: OnceLock::new(),
            busy: AtomicBool::new(false),
            elsewhere: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            _open: open,
        });
        caller.watch.wake_at(Instant::now() + HELLO_WITHIN);
        let watched = caller.watch.add(0, caller.outlet.stream());
        watched.inspect_err(|_| caller.end())?;
        Ok(caller)
    }

    /// Says why, if the peer can still hear it, and hangs up.
    pub fn refuse(&self, error: Error) {
        tracing::warn!(peer = %self.peer, %error, "a connection is refused");
        match self.greeted.get() {
            None => self.send(|out| frame::encode(&Greeting::Refused(error), out)),
            Some(_) => self.answer(&Reply::failed(error)),
        }
        self.end();
    }

    /// Answers the open call; from any thread.
    pub fn answer(&self, reply: &Reply) {
        let version = self.version();
        // Before the peer can have read it: its next call may come at once.
        self.busy.store(false, Ordering::Release);
        self.send(|out| {
            frame::encode_reply(version, reply, out).or_else(|error| {
                let failed = Reply::new(reply.epoch, Answer::Failed(error));
                frame::encode_reply(version, &failed, out)
            })
        });
    }

    fn send(&self, encode: impl FnOnce(&mut Vec<u8>) -> Result<()>) {
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        let sent = self.outlet.send(&self.watch, |out| {
            if let Err(error) = encode(out) {
                tracing::error!(%error, "an answer cannot be written down");
            }
        });
        match sent {
            Ok(true) => {}
            Ok(false) => self.watch.wake_at(Instant::now() + READ_WITHIN),
            Err(_) => self.end(),
        }
    }

    fn read(self: &Arc<Self>, ready: EventFlags, scratch: &mut [u8]) {
        let mut inbox = self.inbox.lock();
        let (inbox, half) = &mut *inbox;
        if !half.make_room(inbox.under_way(), self) {
            // The end of a connection is told while it is not read, too.
            if ready.intersects(EventFlags::HUP | EventFlags::ERR) {
                self.end();
            }
            return;
        }
        match socket::read_some(self.outlet.stream(), scratch) {
            Ok(0) => return self.end(),
            Ok(read) => inbox.extend(&scratch[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.end(),
        }
        while !self.ended.load(Ordering::Acquire) {
            let limit = match self.greeted.get() {
                None => MAX_GREETING,
                Some(_) => MAX_FRAME,
            };
            let heard = match inbox.next(limit) {
                Ok(None) => {
                    let is_timed = half.stands_still_since().is_some();
                    // Where there is none it is read again as soon as there is.
                    half.make_room(inbox.under_way(), self);
                    if !is_timed && half.stands_still_since().is_some() {
                        self.watch.wake_at(Instant::now() + GOES_ON_WITHIN);
                    }
                    return;
                }
                Ok(Some(frame)) => self.hear(frame, scratch),
                Err(error) => Err(error),
            };
            if let Err(error) = heard {
                self.refuse(error);
            }
        }
    }

    fn hear(self: &Arc<Self>, frame: Vec<u8>, scratch: &mut [u8]) -> Result<()> {
        let Some(greeted) = self.greeted.get() else {
            return self.greet(&frame::decode(&frame.into())?);
        };
        if frame::carries_secret(&frame) {
            scratch.zeroize();
        }
        let call = frame::decode_call(frame)?;
        if self.elsewhere.load(Ordering::Acquire) {
            return Err(Error::protocol(
                "a call before the answer to that by which the connection was handed over",
            ));
        }
        // Also bounds what a peer that never reads can make this end keep: one answer.
        if self.busy.swap(true, Ordering::AcqRel) || self.outlet.waiting_since().is_some() {
            return Err(Error::protocol(
                "a call before the answer to the last one: one call at a time on each connection",
            ));
        }
        greeted
            .conversation
            .call(call, Answerer::new(Arc::clone(self)));
        Ok(())
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

impl Reader for Caller {
    fn pause(&self) {
        // An answer that is not taken yet is not waited for: who begins another call before it has read it breaks
        // the rules.
        let _ = self.watch.set(0, self.outlet.stream(), EventFlags::empty());
    }

    fn resume(&self) {
        self.watch.wake_at(Instant::now() + GOES_ON_WITHIN);
        let resumed = self.watch.set(0, self.outlet.stream(), EventFlags::IN);
        if resumed.is_err() {
            self.end();
        }
    }
}

impl Source for Caller {
    fn ready(self: Arc<Self>, _: u16, ready: EventFlags, scratch: &mut [u8]) {
        let flushed = if ready.contains(EventFlags::OUT) {
            self.outlet.flush(&self.watch)
        } else {
            Ok(())
        };
        if flushed.is_err() || self.elsewhere.load(Ordering::Acquire) {
            self.end();
        } else if ready.intersects(!EventFlags::OUT) {
            self.read(ready, scratch);
        }
    }

    fn expired(self: Arc<Self>, now: Instant) -> Option<Instant> {
        if self.greeted.get().is_none() {
            tracing::debug!(peer = %self.peer, "no greeting in time; closed");
            self.end();
            return None;
        }
        let since = self.inbox.lock().1.stands_still_since();
        let sends = since.map(|since| {
            (
                since + GOES_ON_WITHIN,
                "does not send the rest of a call; closed",
            )
        });
        let since = self.outlet.waiting_since();
        let reads = since.map(|since| (since + READ_WITHIN, "does not read its answer; closed"));
        let (until, why) = [sends, reads].into_iter().flatten().min()?;
        if until > now {
            return Some(until);
        }
        tracing::warn!(peer = %self.peer, why);
        self.end();
        None
    }

    fn abandoned(self: Arc<Self>) {
        self.end();
    }
}
