//! One connection that was handed over: what comes on it, and what is answered.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hsmux_token::{Error, Kind, ObjectId, Operation, Outcome, Result};

use super::{LONGEST, processor};
use crate::frame::{self, FrameBuffer};
use crate::wipe::{empty, wipe};
use crate::{Answer, Call, Peer, Reply, socket};

/// Longer than anyone waits; a deadline further off would overflow the clock.
const MAX_REMAINING: Duration = Duration::from_secs(24 * 3600);

/// Reads that one frame may take. A client writes a frame at once, and each read wakes the worker.
const MOST_READS: u32 = 16;

/// A program's connection, as several threads may hear it.
pub struct Handed {
    pub(super) stream: UnixStream,
    /// Whose it is, by the kernel's word.
    pub(super) uid: u32,
    version: u16,
    key: ObjectId,
    /// Those of this process.
    everywhere: Arc<AtomicUsize>,
}

/// A program's connection, as one thread hears it.
pub(super) struct Line {
    pub handed: Arc<Handed>,
    pub home: bool,
    pub shared: bool,
    inbox: FrameBuffer,
    /// Reads that the frame under way has taken.
    reads: u32,
    /// Uses in a row that were not short.
    pub long: u32,
    /// The number of its last turn among users.
    pub turn: u64,
}

/// What came on a line.
pub(super) enum Heard {
    /// Nothing that is whole.
    Nothing,
    Asked(Operation, Instant),
    /// What is no use of its key.
    Refused(Error),
    /// The program is gone, or speaks nonsense.
    Ended,
}

impl Handed {
    /// On which `version` is spoken, for uses of `key`; counted in `everywhere` until no thread hears it any more.
    pub fn new(
        stream: UnixStream,
        version: u16,
        key: ObjectId,
        everywhere: Arc<AtomicUsize>,
    ) -> io::Result<Self> {
        let uid = Peer::of(&stream)?.uid;
        everywhere.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            stream,
            uid,
            version,
            key,
            everywhere,
        })
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.everywhere.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Line {
    pub fn new(handed: Arc<Handed>, shared: bool, home: bool) -> Self {
        Self {
            handed,
            home,
            shared,
            inbox: FrameBuffer::of_calls(),
            reads: 0,
            long: 0,
            turn: 0,
        }
    }

    /// Takes what has come into `chunk`.
    pub fn hear(&mut self, chunk: &mut [u8]) -> Heard {
        match socket::read_some(&self.handed.stream, chunk) {
            Ok(0) => return Heard::Ended,
            Ok(read) => {
                self.inbox.extend(&chunk[..read]);
                // What is not for a worker may be a PIN all the same.
                wipe(&mut chunk[..read]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Nothing,
            Err(_) => return Heard::Ended,
        }
        let call = match self.inbox.next(LONGEST) {
            // The rest may come to another thread.
            Ok(None) if self.shared || self.reads == MOST_READS => return Heard::Ended,
            Ok(None) => {
                self.reads += 1;
                return Heard::Nothing;
            }
            Ok(Some(frame)) => {
                self.reads = 0;
                frame::decode_call(frame)
            }
            Err(error) => Err(error),
        };
        // One call at a time: what follows before its answer would never be heard.
        match call {
            Ok(Call::Execute(items)) if self.inbox.pending() == 0 => self.judge(items),
            _ => Heard::Ended,
        }
    }

    /// Whether it is what the connection was handed over for.
    fn judge(&self, items: Vec<crate::Item>) -> Heard {
        let Ok([item]) = <[crate::Item; 1]>::try_from(items) else {
            return Heard::Ended;
        };
        let of_key = item.operation.key_use();
        if of_key.is_none_or(|(_, key, ..)| key != self.handed.key) {
            let why = "this connection is for uses of another key";
            return Heard::Refused(Error::request(Kind::Forbidden, why));
        }
        if let Err(error) = item.operation.check() {
            return Heard::Refused(error);
        }
        let remaining = Duration::from_micros(item.remaining_us).min(MAX_REMAINING);
        Heard::Asked(item.operation, Instant::now() + remaining)
    }

    /// Whether the answer is on its way: a program that does not read is not waited for.
    pub fn answer(&self, result: Result<Outcome>, out: &mut Vec<u8>) -> bool {
        let reply = Reply {
            cpu: Some(processor()),
            ..Reply::new(0, Answer::Results(vec![result]))
        };
        let written = frame::encode_reply(self.handed.version, &reply, out).is_ok_and(|()| {
            socket::write_some(&self.handed.stream, out).is_ok_and(|n| n == out.len())
        });
        empty(out);
        written
    }

    /// The daemon has the same socket: closing this end alone would end nothing.
    pub fn end(&self) {
        let _ = self.handed.stream.shutdown(Shutdown::Both);
    }
}
