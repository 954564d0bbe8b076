//! Idle timer of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// The idle timer of one connection.
pub struct Pace {
    begin: Instant,
    /// Time of the last activity, in milliseconds since `begin`.
    moved: AtomicU64,
    /// Answers, or parts of them, that the client waits for.
    owed: AtomicUsize,
}

/// While this exists the client waits for the gateway, and the connection is not idle.
pub struct Owed(Arc<Pace>);

impl Pace {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            begin: Instant::now(),
            moved: AtomicU64::new(0),
            owed: AtomicUsize::new(0),
        })
    }

    pub fn owe(self: &Arc<Self>) -> Owed {
        self.owed.fetch_add(1, Relaxed);
        Owed(Arc::clone(self))
    }

    pub fn moved(&self) {
        self.moved
            .store(self.begin.elapsed().as_millis() as u64, Relaxed);
    }

    /// Returns once the connection was idle for `patience`.
    pub async fn rest(&self, patience: Duration) {
        while let Some(left) = self.left(patience) {
            sleep(left).await;
        }
    }

    fn left(&self, patience: Duration) -> Option<Duration> {
        if self.owed.load(Relaxed) > 0 {
            return Some(patience);
        }
        let moved = Duration::from_millis(self.moved.load(Relaxed));
        let quiet = self.begin.elapsed().saturating_sub(moved);
        patience
            .checked_sub(quiet)
            .filter(|left| *left > Duration::ZERO)
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.moved();
        self.0.owed.fetch_sub(1, Relaxed);
    }
}
