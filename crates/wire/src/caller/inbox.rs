//! Frames that a client sends, with limits on their time and memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hsmux_token::{Error, Kind, Result};
use rustix::event::epoll::EventFlags;

use super::{Caller, Greeted};
use crate::budget::{FREE, Room};
use crate::frame::{self, FrameBuffer, MAX_FRAME, MAX_GREETING};
use crate::server::Answerer;
use crate::wipe::wipe;
use crate::{Call, Reply, socket};

/// The time limit of a frame, from its first byte to its last. Each [`SLOWEST`] bytes add a second.
const FRAME_WITHIN: Duration = Duration::from_secs(30);

/// Bytes a second that any honest peer sends, even a host over a slow line.
const SLOWEST: usize = 64 << 10;

/// Bytes that a frame needs besides its own and those of an answer as long.
const AROUND: usize = 4 << 10;

/// Bytes that a data item takes in memory once it is decoded. An attribute has three items, and takes 40 bytes.
const ITEM: usize = 16;

/// Received bytes and calls. Only the reactor's thread uses it.
pub(super) struct Inbox {
    frames: FrameBuffer,
    /// When the first byte of an incomplete frame came.
    begun: Option<Instant>,
    /// A call that waits for room, or for its peer to read the answer to the last one.
    waiting: Option<Vec<u8>>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            frames: FrameBuffer::of_calls(),
            begun: None,
            waiting: None,
        }
    }
}

impl Inbox {
    /// Whether a call, or the beginning of one, waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some() || self.frames.pending() > 0
    }
}

impl Caller {
    pub(super) fn read(self: &Arc<Self>, ready: EventFlags, scratch: &mut [u8]) {
        let mut inbox = self.inbox.lock();
        let has_some = inbox.waiting.is_some() || inbox.frames.pending() > 0;
        if has_some && !self.hear_all(&mut inbox) {
            // epoll reports the end of a connection also while the connection is paused.
            if ready.intersects(EventFlags::HUP | EventFlags::ERR) {
                self.end();
            }
            return;
        }
        match socket::read_some(self.outlet.stream(), scratch) {
            Ok(0) => return self.end(),
            Ok(read) => {
                inbox.frames.extend(&scratch[..read]);
                wipe(&mut scratch[..read]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.end(),
        }
        self.hear_all(&mut inbox);
    }

    /// Takes all whole frames. Answers whether more may be read.
    fn hear_all(self: &Arc<Self>, inbox: &mut Inbox) -> bool {
        while !self.ended.load(Ordering::Acquire) {
            let next = match inbox.waiting.take() {
                Some(frame) => Ok(Some(frame)),
                None => inbox.frames.next(self.longest()),
            };
            let heard = match next {
                Ok(Some(frame)) => self.hear(inbox, frame),
                Ok(None) => match self.await_rest(inbox) {
                    Ok(may_read) => return may_read,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            match heard {
                Ok(true) => inbox.begun = None,
                Ok(false) => return false,
                Err(error) => self.refuse(error),
            }
        }
        false
    }

    /// The longest frame that may come now.
    fn longest(&self) -> usize {
        match self.greeted.get() {
            None => MAX_GREETING,
            Some(greeted) if greeted.conversation.logged_in() => MAX_FRAME,
            Some(_) => FREE,
        }
    }

    /// Handles an incomplete frame, or none. Answers whether there is room for the rest.
    fn await_rest(self: &Arc<Self>, inbox: &mut Inbox) -> Result<bool> {
        if inbox.frames.pending() == 0 {
            inbox.begun = None;
            return Ok(true);
        }
        if self.busy.load(Ordering::Acquire) {
            return Err(one_at_a_time());
        }
        if self.outlet.waiting_since().is_some() {
            return Ok(false);
        }
        let len = inbox.frames.under_way();
        let begun = *inbox.begun.get_or_insert_with(Instant::now);
        self.arm(begun + time_for(len));
        let pending = inbox.frames.pending();
        let need = if len > FREE {
            2 * len + AROUND
        } else {
            len.max(pending)
        };
        match self.charge.ask(need, pending, self) {
            Room::Granted => Ok(true),
            Room::Waits => Ok(false),
            Room::Full => Err(full(need)),
        }
    }

    /// Takes a whole frame; `false` if it has to wait.
    fn hear(self: &Arc<Self>, inbox: &mut Inbox, frame: Vec<u8>) -> Result<bool> {
        let Some(greeted) = self.greeted.get() else {
            self.greet(&frame::decode(&frame.into())?)?;
            return Ok(true);
        };
        let secret = frame::carries_secret(&frame);
        if self.elsewhere.load(Ordering::Acquire) {
            return Err(Error::protocol(
                "a call before the answer to that by which the connection was handed over",
            ));
        }
        // Bytes behind the call were sent before its answer. Besides, a connection's turn is one call long.
        if self.busy.load(Ordering::Acquire) || inbox.frames.pending() > 0 {
            return Err(one_at_a_time());
        }
        // A call waits until the peer has read the last answer: only one of both is held at a time.
        if self.outlet.waiting_since().is_some() {
            inbox.waiting = Some(frame);
            return Ok(false);
        }
        if secret {
            self.call(greeted, frame::decode_call(frame)?);
            return Ok(true);
        }
        let conversation = &greeted.conversation;
        let most = if conversation.logged_in() {
            usize::MAX
        } else {
            FREE
        };
        let operations = frame::claimed_operations(&frame);
        // A call cannot have more operations than bytes; `count_call` below refuses it.
        if operations > conversation.most_operations() && operations <= frame.len() as u64 {
            let refused = too_many(operations, conversation.most_operations());
            self.answer(&Reply::failed(refused));
            return Ok(true);
        }
        let items = frame::count_call(&frame)?;
        let held = frame.len() + items * ITEM;
        if held > most {
            self.answer(&Reply::failed(too_much(held)));
            return Ok(true);
        }
        let read = frame.len();
        let frame = Bytes::from(frame);
        let call: Call = frame::decode_counted(&frame)?;
        let need = held + conversation.answer_bytes(&call);
        // The peer cannot make the catalogue larger.
        if need > most && !matches!(call, Call::Catalogue { .. }) {
            self.answer(&Reply::failed(too_much(need)));
            return Ok(true);
        }
        match self.charge.ask(need, read, self) {
            Room::Granted => self.call(greeted, call),
            Room::Waits => {
                drop(call);
                inbox.waiting = Some(frame.into());
                return Ok(false);
            }
            Room::Full => self.answer(&Reply::failed(full(need))),
        }
        Ok(true)
    }

    fn call(self: &Arc<Self>, greeted: &Greeted, call: Call) {
        self.busy.store(true, Ordering::Release);
        let answer = Answerer::new(Arc::clone(self));
        greeted.conversation.call(call, answer);
    }

    /// The deadline of an incomplete frame. The time does not run while the connection is paused.
    pub(super) fn rest_until(&self) -> Option<Instant> {
        let inbox = self.inbox.lock();
        let begun = inbox.begun?;
        if inbox.waiting.is_some() || self.charge.waits() {
            return None;
        }
        let granted = self.charge.granted_since();
        let begun = granted.map_or(begun, |granted| begun.max(granted));
        Some(begun + time_for(inbox.frames.under_way()))
    }
}

fn one_at_a_time() -> Error {
    Error::protocol(
        "a call before the answer to the last one: one call at a time on each connection",
    )
}

/// How long a frame of `len` bytes may take.
fn time_for(len: usize) -> Duration {
    FRAME_WITHIN + Duration::from_secs((len / SLOWEST) as u64)
}

fn too_many(operations: u64, most: u64) -> Error {
    let message = format!("{operations} operations in one call; {most} may be");
    Error::request(Kind::Invalid, message)
}

fn too_much(bytes: usize) -> Error {
    let message = format!(
        "a call that needs {bytes} bytes; before C_Login a connection has {FREE}: log in, or ask for less at once"
    );
    Error::request(Kind::Invalid, message)
}

fn full(bytes: usize) -> Error {
    let message = format!(
        "a call that needs {bytes} bytes, which other calls of this user leave no room for: try again later"
    );
    Error::pool(Kind::Busy, message)
}
