//! What a source does with its reactor.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::epoll;

use super::{Core, Source, TAG_BITS};

/// A source's hold on the reactor.
pub(crate) struct Watch {
    pub(super) core: Arc<Core>,
    pub(super) id: u64,
}

impl Watch {
    /// Watches a descriptor for reading.
    pub fn add(&self, tag: u16, fd: impl AsFd) -> io::Result<()> {
        if self.core.stopping.load(Ordering::Acquire) {
            return Err(io::Error::other("the reactor has stopped"));
        }
        Ok(epoll::add(
            &self.core.epoll,
            fd,
            self.data(tag),
            epoll::EventFlags::IN,
        )?)
    }

    /// Changes what a descriptor is watched for.
    pub fn set(&self, tag: u16, fd: impl AsFd, flags: epoll::EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.core.epoll, fd, self.data(tag), flags)?)
    }

    /// Watches a descriptor no more.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.core.epoll, fd);
    }

    /// Calls [`Source::expired`] at that time, or soon after.
    pub fn wake_at(&self, at: Instant) {
        self.core.wake_at(at, self.id);
    }

    /// A process on this machine has something to do, whose answer will come here.
    pub fn begun(&self) {
        self.core.running.fetch_add(1, Ordering::Relaxed);
    }

    /// So many of those have ended.
    pub fn ended(&self, count: usize) {
        self.core.running.fetch_sub(count, Ordering::Relaxed);
    }

    /// Lets the source go; its descriptors are removed by itself.
    pub fn end(&self) {
        // Dropped after the lock: the source may hold others.
        let ended = self.core.sources.remove(self.id);
        drop(ended);
    }

    /// Takes in another source: a listener's connection.
    pub fn adopt<S: Source + 'static>(&self, make: impl FnOnce(Self) -> S) -> Arc<S> {
        self.core.adopt(make)
    }

    fn data(&self, tag: u16) -> epoll::EventData {
        epoll::EventData::new_u64(self.id << TAG_BITS | u64::from(tag))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.core.timers.lock().remove(self.id);
    }
}
