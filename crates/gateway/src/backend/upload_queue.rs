//! Parts of a request's body that wait for the back end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::memory::{cost, own};

/// The waiting parts of one request.
pub struct UploadQueue {
    most: usize,
    held: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

/// A part that counts until it is sent.
struct Queued {
    bytes: Bytes,
    queue: Arc<UploadQueue>,
}

impl UploadQueue {
    /// A queue of so many bytes. One part always has room.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            held: AtomicUsize::new(0),
            waker: Mutex::default(),
        })
    }

    /// Ready when the next part has room.
    pub fn poll_ready(&self, context: &Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        *self.waker.lock() = Some(context.waker().clone());
        // A part may have been sent in between.
        if self.has_room() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Counts a part until its last byte is gone.
    pub fn hold(self: &Arc<Self>, part: Bytes) -> Bytes {
        self.held.fetch_add(cost(&part), SeqCst);
        Bytes::from_owner(Queued {
            bytes: own(part),
            queue: Arc::clone(self),
        })
    }

    fn has_room(&self) -> bool {
        let held = self.held.load(SeqCst);
        held == 0 || held < self.most
    }
}

impl AsRef<[u8]> for Queued {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.queue.held.fetch_sub(cost(&self.bytes), SeqCst);
        if !self.queue.has_room() {
            return;
        }
        let waker = self.queue.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(queue: &UploadQueue) -> bool {
        queue
            .poll_ready(&Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn parts_of_one_byte_are_bounded_and_keep_no_buffer() {
        let queue = UploadQueue::new(64 << 10);
        let buffer = Bytes::from(vec![7; 32 << 10]);
        let mut parts = Vec::new();
        while is_ready(&queue) {
            parts.push(queue.hold(buffer.slice(9..10)));
        }
        assert!(parts.len() < 200, "{}", parts.len());
        assert!(buffer.is_unique());
        assert!(parts.iter().all(|part| part[..] == [7]));
        parts.pop();
        assert!(is_ready(&queue));
        drop(parts);
        assert_eq!(queue.held.load(SeqCst), 0);
    }

    #[test]
    fn a_long_part_is_not_copied_and_always_has_room() {
        let queue = UploadQueue::new(10);
        let buffer = Bytes::from(vec![7; 32 << 10]);
        assert!(is_ready(&queue));
        let part = queue.hold(buffer.clone());
        assert_eq!(part.as_ptr(), buffer.as_ptr());
        assert!(!is_ready(&queue));
        drop(part);
        assert!(is_ready(&queue));
    }
}
