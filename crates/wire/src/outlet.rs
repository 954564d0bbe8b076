//! Writing from any thread to a socket that the reactor reads.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use hsmux_token::fork::Unshared;
use hsmux_token::sync::Mutex;
use rustix::event::epoll::EventFlags;

use crate::frame::KEPT;
use crate::reactor::Watch;
use crate::socket;

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
        let mut pending = self.pending.lock();
        let behind = !pending.bytes.is_empty();
        frame(&mut pending.bytes);
        if behind {
            return Ok(false);
        }
        let drained = pending.drain(&self.stream)?;
        if !drained {
            pending.since = Some(Instant::now());
            let flags = EventFlags::IN | EventFlags::OUT;
            watch.set(self.tag, &self.stream, flags)?;
        }
        Ok(drained)
    }

    /// Goes on writing; called by the reactor when the socket takes more.
    pub fn flush(&self, watch: &Watch) -> io::Result<()> {
        let mut pending = self.pending.lock();
        if pending.drain(&self.stream)? {
            watch.set(self.tag, &self.stream, EventFlags::IN)?;
        }
        Ok(())
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
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        Ok(true)
    }
}
