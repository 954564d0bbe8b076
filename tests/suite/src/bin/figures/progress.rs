//! Progress: the current turn, and the remaining time.

use std::time::{Duration, Instant};

/// A known number of turns with planned durations.
pub struct Turns {
    begun: Instant,
    /// The planned time of past turns, and of remaining ones.
    past: Duration,
    coming: Vec<Duration>,
}

impl Turns {
    /// The turns in their order.
    pub fn new(planned: impl IntoIterator<Item = Duration>) -> Self {
        let mut coming: Vec<_> = planned.into_iter().collect();
        coming.reverse();
        Self {
            begun: Instant::now(),
            past: Duration::ZERO,
            coming,
        }
    }

    /// Announces the next turn on standard error.
    pub fn next(&mut self, what: &str) {
        let left = self.left().as_secs();
        eprintln!("{what} (about {} min {:02} s left)", left / 60, left % 60);
        self.past += self.coming.pop().unwrap_or_default();
    }

    /// The remaining time: by the speed so far, but not less than planned.
    fn left(&self) -> Duration {
        let planned: Duration = self.coming.iter().sum();
        if self.past.is_zero() {
            return planned;
        }
        let slower = self.begun.elapsed().as_secs_f64() / self.past.as_secs_f64();
        planned.mul_f64(slower.max(1.0))
    }
}

/// Announces a preparation on standard error.
pub fn preparing(what: &str) {
    eprintln!("setting up {what}");
}
