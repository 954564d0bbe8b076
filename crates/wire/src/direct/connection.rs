//! One direct connection: reads its calls, and writes its answers.

use std::collections::VecDeque;
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

/// Uses that one frame may have.
pub(crate) const MOST_USES: usize = 16;

/// Reads that one frame may take. A client writes a frame at once, and each read wakes the worker.
const MOST_READS: u32 = 16;

/// A program's connection, shared by the threads that read it.
pub struct ProgramConnection {
    pub(super) stream: UnixStream,
    /// The account of the program's user, whom the kernel reports (SO_PEERCRED).
    pub(super) account: u32,
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
    /// Uses of the last frame that are still to be done, and the results of those before them.
    uses: VecDeque<Use>,
    results: Vec<Result<Outcome>>,
    /// Reads that the frame under way has taken.
    reads: u32,
    /// Uses in a row that were not short.
    pub long: u32,
    /// The number of its last turn among users.
    pub turn: u64,
}

/// A use with its deadline, or why it is refused.
pub(super) type Use = Result<(Operation, Instant)>;

/// The result of one read of a direct connection.
pub(super) enum ReadResult {
    /// No whole frame yet.
    Nothing,
    /// The frame's uses wait in [`ConnectionReader::take`].
    Asked,
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
        let account = Peer::of(&stream)?.account;
        everywhere.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            stream,
            account,
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
            uses: VecDeque::new(),
            results: Vec::new(),
            reads: 0,
            long: 0,
            turn: 0,
        }
    }

    /// Reads the available bytes through `chunk`, unless uses of the last frame are still to be done.
    pub fn hear(&mut self, chunk: &mut [u8]) -> ReadResult {
        if self.is_unfinished() {
            return ReadResult::Asked;
        }
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
            Ok(Call::Execute(items)) if self.inbox.pending() == 0 => self.keep(items),
            _ => ReadResult::Ended,
        }
    }

    /// Keeps the uses of a call.
    fn keep(&mut self, items: Vec<crate::Item>) -> ReadResult {
        if items.is_empty() || items.len() > MOST_USES {
            return ReadResult::Ended;
        }
        let now = Instant::now();
        self.uses = items
            .into_iter()
            .map(|item| self.check(item, now))
            .collect();
        ReadResult::Asked
    }

    /// A use of another key, or an invalid one, is refused, and the frame's others are done.
    fn check(&self, item: crate::Item, now: Instant) -> Use {
        let of_key = item.operation.key_use();
        if of_key.is_none_or(|(_, key, ..)| key != self.connection.key) {
            let why = "this connection is for uses of another key";
            return Err(Error::request(Kind::Forbidden, why));
        }
        item.operation.check()?;
        let remaining = Duration::from_micros(item.remaining_us).min(MAX_REMAINING);
        Ok((item.operation, now + remaining))
    }

    /// True if uses of the last frame are still to be done.
    pub fn is_unfinished(&self) -> bool {
        !self.uses.is_empty()
    }

    /// Takes the next uses, `most` at most. A use whose deadline has passed is refused.
    pub fn take(&mut self, most: usize) -> impl Iterator<Item = Use> {
        let now = Instant::now();
        let next = self.uses.drain(..most.min(self.uses.len()));
        next.map(move |each| {
            let (operation, until) = each?;
            if until <= now {
                let why = "its deadline passed before its turn";
                let message = format!("{}: {why}", operation.call());
                return Err(Error::pool(Kind::Deadline, message));
            }
            Ok((operation, until))
        })
    }

    /// Keeps the results of the uses that were taken. Answers the frame when it has all of them.
    pub fn finish(
        &mut self,
        results: impl Iterator<Item = Result<Outcome>>,
        out: &mut Vec<u8>,
    ) -> bool {
        self.results.extend(results);
        if self.is_unfinished() {
            return true;
        }
        let results = std::mem::take(&mut self.results);
        self.answer(results, out)
    }

    /// Writes the answer. Returns `false` if the socket does not take it whole: a worker never waits for a program to read.
    fn answer(&self, results: Vec<Result<Outcome>>, out: &mut Vec<u8>) -> bool {
        let reply = Reply {
            cpu: Some(processor()),
            ..Reply::new(0, Answer::Results(results))
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
