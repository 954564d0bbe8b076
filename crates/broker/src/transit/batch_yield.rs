//! Yields between the items of a batch. Verification and RSA with a public key never wait: a batch of thousands would
//! block a thread of the runtime.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::yield_now;

/// The longest turn. A hundred short items fit into one turn: a yield costs more than some of them.
const LONG_ENOUGH: Duration = Duration::from_millis(2);

/// A batch's turn on a thread.
pub struct BatchYield {
    first: Instant,
    /// The beginning of this turn, in microseconds after the first.
    begun: AtomicU64,
}

impl BatchYield {
    /// The first one begins.
    pub fn new() -> Self {
        Self {
            first: Instant::now(),
            begun: AtomicU64::new(0),
        }
    }

    /// Begins a turn: the batch is polled.
    pub fn begin(&self) {
        self.begun.store(self.elapsed(), Ordering::Relaxed);
    }

    /// Yields if this turn has been long enough.
    pub async fn own(&self) {
        while self.elapsed() - self.begun.load(Ordering::Relaxed) > LONG_ENOUGH.as_micros() as u64 {
            yield_now().await;
        }
    }

    fn elapsed(&self) -> u64 {
        self.first.elapsed().as_micros() as u64
    }
}
