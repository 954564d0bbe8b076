//! One direct connection: reads its calls, and writes its answers.

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

/// A program's connection, shared by the threads that read it.
pub struct ProgramConnection {
    pub(super) stream: UnixStream,
    /// The program's user id, by the kernel (SO_PEERCRED).
    pub(super) uid: u32,
    version: u16,
    key: ObjectId,
    /// The number of direct connections of this process.
    everywhere: Arc<AtomicUsize>,
}

/// A program's connection, with one thread's own state.
pub(super) struct ConnectionReader {
    pub connection: Arc<ProgramConnection>,
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

/// The result of one read of a direct connection.
pub(super) enum ReadResult {
    /// No whole frame yet.
    Nothing,
    Asked(Operation, Instant),
    /// A call that is not a valid use of the connection's key.
    Refused(Error),
    /// The program has hung up, or sent something malformed.
    Ended,
}

impl ProgramConnection {
    /// A connection in this frame `version`, for uses of `key`. It is counted in `everywhere` until it is dropped.
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

impl Drop for ProgramConnection {
    fn drop(&mut self) {
        self.everywhere.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionReader {
    pub fn new(connection: Arc<ProgramConnection>, shared: bool, home: bool) -> Self {
        Self {
            connection,
            home,
            shared,
            inbox: FrameBuffer::of_calls(),
            reads: 0,
            long: 0,
            turn: 0,
        }
    }

    /// Reads the available bytes through `chunk`.
    pub fn hear(&mut self, chunk: &mut [u8]) -> ReadResult {
        match socket::read_some(&self.connection.stream, chunk) {
            Ok(0) => return ReadResult::Ended,
            Ok(read) => {
                self.inbox.extend(&chunk[..read]);
                // A program may send a PIN here by mistake.
                wipe(&mut chunk[..read]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ReadResult::Nothing,
            Err(_) => return ReadResult::Ended,
        }
        let call = match self.inbox.next(LONGEST) {
            // If the connection is shared, another thread may read the rest.
            Ok(None) if self.shared || self.reads == MOST_READS => return ReadResult::Ended,
            Ok(None) => {
                self.reads += 1;
                return ReadResult::Nothing;
            }
            Ok(Some(frame)) => {
                self.reads = 0;
                frame::decode_call(frame)
            }
            Err(error) => Err(error),
        };
        // One call at a time: bytes that follow before the answer would never be read.
        match call {
            Ok(Call::Execute(items)) if self.inbox.pending() == 0 => self.judge(items),
            _ => ReadResult::Ended,
        }
    }

    /// Checks that the call is one valid use of the connection's key.
    fn judge(&self, items: Vec<crate::Item>) -> ReadResult {
        let Ok([item]) = <[crate::Item; 1]>::try_from(items) else {
            return ReadResult::Ended;
        };
        let of_key = item.operation.key_use();
        if of_key.is_none_or(|(_, key, ..)| key != self.connection.key) {
            let why = "this connection is for uses of another key";
            return ReadResult::Refused(Error::request(Kind::Forbidden, why));
        }
        if let Err(error) = item.operation.check() {
            return ReadResult::Refused(error);
        }
        let remaining = Duration::from_micros(item.remaining_us).min(MAX_REMAINING);
        ReadResult::Asked(item.operation, Instant::now() + remaining)
    }

    /// Writes the answer. `false` if the socket does not take it whole: a worker never waits for a program to read.
    pub fn answer(&self, result: Result<Outcome>, out: &mut Vec<u8>) -> bool {
        let reply = Reply {
            cpu: Some(processor()),
            ..Reply::new(0, Answer::Results(vec![result]))
        };
        let written = frame::encode_reply(self.connection.version, &reply, out).is_ok_and(|()| {
            socket::write_some(&self.connection.stream, out).is_ok_and(|n| n == out.len())
        });
        empty(out);
        written
    }

    /// The daemon has the same socket: closing this end alone would end nothing.
    pub fn end(&self) {
        let _ = self.connection.stream.shutdown(Shutdown::Both);
    }
}
