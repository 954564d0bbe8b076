//! Entry for fuzz targets: the bytes of a program on a direct connection, as a worker reads them.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use hsmux_token::{Error, ObjectId, Operation};

use super::line::{Heard, Line};
use super::{CHUNK, Handed};

/// A connection whose program is a fuzzer.
pub struct Rig {
    handed: Arc<Handed>,
    program: UnixStream,
    chunk: Box<[u8]>,
}

/// The worker's reaction.
#[derive(Debug)]
pub enum Asked {
    /// The frame is incomplete.
    Nothing,
    /// A use of the key, with its deadline.
    Use(Operation, Instant),
    /// A call that is answered by an error.
    Refused(Error),
    /// The connection ends.
    Ended,
}

impl Rig {
    /// For uses of this key.
    pub fn new(key: ObjectId) -> Self {
        let (stream, program) = UnixStream::pair().expect("a pair of sockets");
        Self {
            handed: Arc::new(
                Handed::new(stream, crate::VERSION, key, Arc::default())
                    .expect("a socket has credentials"),
            ),
            program,
            chunk: vec![0; CHUNK].into(),
        }
    }

    /// Writes these pieces to a new connection, and reads each by itself until the worker reacts.
    pub fn hear<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>, shared: bool) -> Asked {
        let mut line = Line::new(Arc::clone(&self.handed), shared, true);
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            self.program.write_all(piece).expect("room in the socket");
            match line.hear(&mut self.chunk) {
                Heard::Nothing => {}
                Heard::Asked(operation, until) => return Asked::Use(operation, until),
                Heard::Refused(error) => return Asked::Refused(error),
                Heard::Ended => return Asked::Ended,
            }
        }
        Asked::Nothing
    }
}
