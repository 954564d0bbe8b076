//! Entry for fuzz targets: the bytes of a program on a direct connection, as a worker reads them.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use hsmux_token::{ObjectId, Operation, Result};

use super::connection::{ConnectionReader, ReadResult};
use super::{CHUNK, MOST_USES, ProgramConnection};

/// A connection whose program is a fuzzer.
pub struct FuzzedConnection {
    connection: Arc<ProgramConnection>,
    program: UnixStream,
    chunk: Box<[u8]>,
}

/// The worker's reaction.
#[derive(Debug)]
pub enum Reaction {
    /// The frame is incomplete.
    Nothing,
    /// Uses of the key with their deadlines, and refused ones.
    Uses(Vec<Result<(Operation, Instant)>>),
    /// The connection ends.
    Ended,
}

impl FuzzedConnection {
    /// For uses of this key.
    pub fn new(key: ObjectId) -> Self {
        let (stream, program) = UnixStream::pair().expect("a pair of sockets");
        Self {
            connection: Arc::new(
                ProgramConnection::new(stream, crate::VERSION, key, Arc::default())
                    .expect("a socket has credentials"),
            ),
            program,
            chunk: vec![0; CHUNK].into(),
        }
    }

    /// Writes these pieces to a new connection, and reads each by itself until the worker reacts.
    pub fn hear<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>, shared: bool) -> Reaction {
        let mut reader = ConnectionReader::new(Arc::clone(&self.connection), shared, true);
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            self.program.write_all(piece).expect("room in the socket");
            match reader.hear(&mut self.chunk) {
                ReadResult::Nothing => {}
                ReadResult::Asked => return Reaction::Uses(reader.take(MOST_USES).collect()),
                ReadResult::Ended => return Reaction::Ended,
            }
        }
        Reaction::Nothing
    }
}
