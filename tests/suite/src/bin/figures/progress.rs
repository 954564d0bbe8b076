//! What a person sees while figures are measured: whose turn it is, and how long it takes yet.

use std::time::{Duration, Instant};

/// Turns that are known beforehand, with the time that each is to take.
pub struct Turns {
    begun: Instant,
    /// What the turns so far were to take, and those to come.
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

    /// Says on standard error that the next turn begins.
    pub fn next(&mut self, what: &str) {
        let left = self.left().as_secs();
        eprintln!("{what} (about {} min {:02} s left)", left / 60, left % 60);
        self.past += self.coming.pop().unwrap_or_default();
    }

    /// As slow as the turns so far have been; never faster than planned.
    fn left(&self) -> Duration {
        let planned: Duration = self.coming.iter().sum();
        if self.past.is_zero() {
            return planned;
        }
        let slower = self.begun.elapsed().as_secs_f64() / self.past.as_secs_f64();
        planned.mul_f64(slower.max(1.0))
    }
}

/// Says on standard error what is done before anything can be measured.
pub fn preparing(what: &str) {
    eprintln!("setting up {what}");
}
