//! Idle timer of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// The idle timer of one connection.
pub struct IdleTimer {
    begin: Instant,
    /// Time of the last activity, in milliseconds since `begin`.
    last_activity: AtomicU64,
    /// Answers, or parts of them, that the client waits for.
    pending: AtomicUsize,
}

/// While this exists the client waits for the gateway, and the connection is not idle.
pub struct PendingWork(Arc<IdleTimer>);

impl IdleTimer {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            begin: Instant::now(),
            last_activity: AtomicU64::new(0),
            pending: AtomicUsize::new(0),
        })
    }

    pub fn begin_work(self: &Arc<Self>) -> PendingWork {
        self.pending.fetch_add(1, Relaxed);
        PendingWork(Arc::clone(self))
    }

    pub fn touch(&self) {
        self.last_activity
            .store(self.begin.elapsed().as_millis() as u64, Relaxed);
    }

    /// Returns once the connection was idle for `patience`.
    pub async fn idle(&self, patience: Duration) {
        while let Some(left) = self.left(patience) {
            sleep(left).await;
        }
    }

    fn left(&self, patience: Duration) -> Option<Duration> {
        if self.pending.load(Relaxed) > 0 {
            return Some(patience);
        }
        let last_activity = Duration::from_millis(self.last_activity.load(Relaxed));
        let quiet = self.begin.elapsed().saturating_sub(last_activity);
        patience
            .checked_sub(quiet)
            .filter(|left| *left > Duration::ZERO)
    }
}

impl Drop for PendingWork {
    fn drop(&mut self) {
        self.0.touch();
        self.0.pending.fetch_sub(1, Relaxed);
    }
}
