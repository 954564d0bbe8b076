//! Memory limit for incomplete heads of HTTP/1.1, which all connections share.
//!
//! hyper buffers a head until it is complete, and keeps the buffer as long as the connection. One short head is not
//! charged: the number of connections is limited itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of a head that are not charged.
const FREE: usize = 8 << 10;

/// The longest head that a service takes (`max_buf_size` of hyper).
pub const LONGEST_HEAD: usize = 64 << 10;

/// Budget for the heads of all connections of a service, beyond the free bytes of each.
pub struct HeadMemory {
    most: usize,
    taken: AtomicUsize,
}

/// Requests of one connection.
#[derive(Clone, Copy)]
pub struct Requests {
    /// How many there have been.
    pub begun: usize,
    /// Whether one of them is not over.
    pub is_under_way: bool,
}

/// The heads of one connection.
pub struct HeadLimit {
    memory: Arc<HeadMemory>,
    requests: Box<dyn Fn() -> Requests + Send>,
    on_refusal: Option<Box<dyn FnOnce() + Send>>,
    /// Requests that had begun at the last read.
    begun: usize,
    /// Bytes that hyper has read since then.
    unread: usize,
    charged: usize,
}

impl HeadMemory {
    /// A budget of so many bytes.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: AtomicUsize::new(0),
        })
    }

    /// Bytes that are held now.
    pub fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|after| *after <= self.most);
        self.taken.fetch_update(Relaxed, Relaxed, more).is_ok()
    }
}

impl HeadLimit {
    /// The limit of a new connection. `on_refusal` is called when a head exceeds the budget.
    pub fn new(
        memory: Arc<HeadMemory>,
        requests: impl Fn() -> Requests + Send + 'static,
        on_refusal: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self {
            memory,
            requests: Box::new(requests),
            on_refusal: Some(Box::new(on_refusal)),
            begun: 0,
            unread: 0,
            charged: 0,
        }
    }

    /// Charges an incomplete head, before hyper reads more. `false`: no memory is left for it. A long buffer stays
    /// charged until the connection ends: hyper does not shrink it.
    #[must_use]
    pub fn may_read(&mut self) -> bool {
        let now = (self.requests)();
        if now.is_under_way || now.begun != self.begun {
            // The bytes so far were a complete head, or belong to a body.
            (self.begun, self.unread) = (now.begun, 0);
        }
        let more = self.unread.saturating_sub(FREE + self.charged);
        if more > 0 && !self.memory.take(more) {
            if let Some(on_refusal) = self.on_refusal.take() {
                on_refusal();
            }
            return false;
        }
        self.charged += more;
        true
    }

    /// Counts bytes that hyper has read, unless they belong to a body.
    pub fn receive(&mut self, bytes: usize) {
        if (self.requests)().is_under_way {
            return;
        }
        self.unread = (self.unread + bytes).min(LONGEST_HEAD);
    }
}

impl Drop for HeadLimit {
    fn drop(&mut self) {
        self.memory.taken.fetch_sub(self.charged, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit of a connection, and its counters: requests begun, requests under way, refusals.
    fn connection(
        memory: &Arc<HeadMemory>,
    ) -> (
        HeadLimit,
        Arc<AtomicUsize>,
        Arc<AtomicUsize>,
        Arc<AtomicUsize>,
    ) {
        let [begun, running, refused] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let (all, now, count) = (
            Arc::clone(&begun),
            Arc::clone(&running),
            Arc::clone(&refused),
        );
        let requests = move || Requests {
            begun: all.load(Relaxed),
            is_under_way: now.load(Relaxed) > 0,
        };
        let on_refusal = move || {
            count.fetch_add(1, Relaxed);
        };
        let limit = HeadLimit::new(Arc::clone(memory), requests, on_refusal);
        (limit, begun, running, refused)
    }

    fn read(limit: &mut HeadLimit, bytes: usize) -> bool {
        limit.receive(bytes);
        limit.may_read()
    }

    #[test]
    fn long_heads_share_one_memory() {
        let memory = HeadMemory::new(3 * (LONGEST_HEAD - FREE));
        let mut limits: Vec<_> = (0..5).map(|_| connection(&memory)).collect();
        let mut served = 0;
        for (limit, ..) in &mut limits {
            served += usize::from((0..LONGEST_HEAD / 1024).all(|_| read(limit, 1024)));
        }
        assert_eq!(served, 3);
        let refused = limits.iter().map(|(.., refused)| refused.load(Relaxed));
        assert_eq!(refused.sum::<usize>(), 2);
        // A short head always has room.
        let (mut short, ..) = connection(&memory);
        assert!(read(&mut short, FREE) && !read(&mut short, 1));
        drop(limits);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn bodies_and_complete_heads_are_not_charged() {
        let memory = HeadMemory::new(0);
        let (mut limit, begun, running, _) = connection(&memory);
        for request in 1..100 {
            assert!(read(&mut limit, FREE));
            // The rest of the head comes with a body.
            limit.receive(LONGEST_HEAD);
            begun.store(request, Relaxed);
            running.store(1, Relaxed);
            for _ in 0..10 {
                assert!(limit.may_read());
                limit.receive(LONGEST_HEAD);
            }
            running.store(0, Relaxed);
        }
        assert_eq!(memory.taken(), 0);
    }
}
