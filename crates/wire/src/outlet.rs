//! Writing from any thread to a socket that the reactor reads.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use hsmux_token::fork::Unshared;
use hsmux_token::sync::Mutex;
use rustix::event::epoll::EventFlags;

use crate::reactor::Watch;
use crate::socket;
use crate::wipe::empty;

/// A socket's way out: what it does not take at once is written by the reactor later.
pub(crate) struct Outlet {
    stream: Unshared<UnixStream>,
    tag: u16,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    written: usize,
    since: Option<Instant>,
}

impl Outlet {
    pub fn new(stream: Unshared<UnixStream>, tag: u16) -> Self {
        Self {
            stream,
            tag,
            pending: Mutex::default(),
        }
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Since when something waits for the peer to read.
    pub fn waiting_since(&self) -> Option<Instant> {
        self.pending.lock().since
    }

    /// Writes what `frame` appends; `Ok(false)` when some of it is left for the reactor.
    pub fn send(&self, watch: &Watch, frame: impl FnOnce(&mut Vec<u8>)) -> io::Result<bool> {
        let flags = EventFlags::IN | EventFlags::OUT;
        self.send_with(watch, flags, frame, |left| left == 0)
    }

    /// Writes what `frame` appends. `left` hears how many bytes are left, before anybody else may write or see that
    /// nothing waits; until these are written the socket is watched for `behind`.
    pub fn send_with<R>(
        &self,
        watch: &Watch,
        behind: EventFlags,
        frame: impl FnOnce(&mut Vec<u8>),
        left: impl FnOnce(usize) -> R,
    ) -> io::Result<R> {
        let mut pending = self.pending.lock();
        let was_behind = !pending.bytes.is_empty();
        frame(&mut pending.bytes);
        if !was_behind && !pending.drain(&self.stream)? {
            pending.since = Some(Instant::now());
            watch.set(self.tag, &self.stream, behind)?;
        }
        Ok(left(pending.bytes.len()))
    }

    /// Goes on writing; called by the reactor when the socket takes more. `done` is called when the last byte of
    /// what waited is written.
    pub fn flush<R>(&self, watch: &Watch, done: impl FnOnce() -> R) -> io::Result<Option<R>> {
        let mut pending = self.pending.lock();
        let waited = !pending.bytes.is_empty();
        if !pending.drain(&self.stream)? {
            return Ok(None);
        }
        watch.set(self.tag, &self.stream, EventFlags::IN)?;
        Ok(waited.then(done))
    }
}

impl Pending {
    /// Writes what the socket takes; whether that was all.
    fn drain(&mut self, stream: &UnixStream) -> io::Result<bool> {
        while self.written < self.bytes.len() {
            match socket::write_some(stream, &self.bytes[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        self.since = None;
        empty(&mut self.bytes);
        Ok(true)
    }
}
