//! A blocking connection: one call, then its answer.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use hsmux_token::fork::Unshared;
use hsmux_token::{Error, Result};
use minicbor::Decode;
use rustix::event::PollFlags;

use crate::frame::{self, FrameBuffer, MAX_FRAME, Message};
use crate::socket;
use crate::wipe::{empty, wipe};

/// Bytes of one read. A signature's frames are a twentieth of it.
const CHUNK: usize = 8 << 10;

/// A socket with its buffers.
pub struct Connection {
    stream: Unshared<UnixStream>,
    inbox: FrameBuffer,
    chunk: Box<[u8; CHUNK]>,
    out: Vec<u8>,
}

/// How an exchange of frames failed.
#[derive(Debug)]
pub enum Broken {
    /// No byte was sent: the peer has not seen the frame.
    Unsent(io::Error),
    /// The peer may have seen it.
    Sent(io::Error),
    /// The frame cannot be encoded, or the answer cannot be decoded.
    Malformed(Error),
}

impl Broken {
    /// Whether the deadline has passed.
    pub fn is_late(&self) -> bool {
        match self {
            Self::Unsent(error) | Self::Sent(error) => error.kind() == io::ErrorKind::TimedOut,
            Self::Malformed(_) => false,
        }
    }

    /// Whether the peer has hung up.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Sent(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsent(error) | Self::Sent(error) => error.fmt(f),
            Self::Malformed(error) => error.fmt(f),
        }
    }
}

impl Connection {
    /// A connection at the end that calls.
    pub fn new(stream: impl Into<Unshared<UnixStream>>) -> Self {
        Self::with(stream.into(), FrameBuffer::default())
    }

    /// A connection at the end that is called.
    pub fn called(stream: impl Into<Unshared<UnixStream>>) -> Self {
        Self::with(stream.into(), FrameBuffer::of_calls())
    }

    fn with(stream: Unshared<UnixStream>, inbox: FrameBuffer) -> Self {
        Self {
            stream,
            inbox,
            chunk: Box::new([0; CHUNK]),
            out: Vec::new(),
        }
    }

    /// The socket.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Writes a frame and waits for its answer, without a limit if there is no deadline.
    pub fn exchange<T: Message>(
        &mut self,
        message: &T,
        deadline: Option<Instant>,
    ) -> Result<Vec<u8>, Broken> {
        self.write(message, deadline)?;
        if self.inbox.pending() == 0 {
            // An answer takes a while: a first read would find nothing.
            self.wait(deadline).map_err(Broken::Sent)?;
        }
        self.read(MAX_FRAME, deadline)
    }

    /// Writes a frame.
    pub fn write<T: Message>(
        &mut self,
        message: &T,
        deadline: Option<Instant>,
    ) -> Result<(), Broken> {
        self.write_with(|out| frame::encode(message, out), deadline)
    }

    /// Writes the bytes that `encode` appends.
    pub(crate) fn write_with(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        deadline: Option<Instant>,
    ) -> Result<(), Broken> {
        let mut out = std::mem::take(&mut self.out);
        let written = encode(&mut out)
            .map_err(Broken::Malformed)
            .and_then(|()| self.write_all(&out, deadline));
        empty(&mut out);
        self.out = out;
        written
    }

    fn write_all(&self, bytes: &[u8], deadline: Option<Instant>) -> Result<(), Broken> {
        let mut written = 0;
        while written < bytes.len() {
            let step = match socket::write_some(&self.stream, &bytes[written..]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket::wait(&self.stream, PollFlags::OUT, deadline).map(|()| 0)
                }
                other => other,
            };
            written += step.map_err(|error| match written {
                0 => Broken::Unsent(error),
                _ => Broken::Sent(error),
            })?;
        }
        Ok(())
    }

    /// Waits for a whole frame.
    pub fn read(&mut self, limit: usize, deadline: Option<Instant>) -> Result<Vec<u8>, Broken> {
        loop {
            if let Some(frame) = self.inbox.next(limit).map_err(Broken::Malformed)? {
                return Ok(frame);
            }
            match socket::read_some(&self.stream, &mut self.chunk[..]) {
                Ok(0) => return Err(Broken::Sent(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.take_in(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(deadline).map_err(Broken::Sent)?;
                }
                Err(error) => return Err(Broken::Sent(error)),
            }
        }
    }

    /// True if no byte of another frame was read.
    pub(crate) fn is_idle(&self) -> bool {
        self.inbox.pending() == 0
    }

    /// Waits until there is something to read.
    ///
    /// It polls: Linux wakes a blocking read also when the peer reads what was written here (`unix_write_space`), which costs
    /// a switch to this thread and back for each call.
    fn wait(&self, deadline: Option<Instant>) -> io::Result<()> {
        socket::wait(&self.stream, PollFlags::IN, deadline)
    }

    fn take_in(&mut self, read: usize) {
        let read = &mut self.chunk[..read];
        self.inbox.extend(read);
        wipe(read);
    }
}

/// Reads an answer that is one message.
pub fn decode<T>(frame: Vec<u8>) -> Result<T>
where
    T: for<'b> Decode<'b, bytes::Bytes>,
{
    frame::decode(&frame.into())
}
