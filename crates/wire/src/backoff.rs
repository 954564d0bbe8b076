//! Back-off of a client that asks for direct connections.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(60);

/// A pause after a refusal, or after the end of a connection. It doubles each time.
#[derive(Default)]
pub struct Backoff {
    pause: Duration,
    until: Option<Instant>,
}

impl Backoff {
    /// True if nothing has failed yet, or the pause is over.
    pub fn is_over(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() >= until)
    }

    /// Begins a pause, twice as long as the last one.
    pub fn fail(&mut self) {
        self.pause = (2 * self.pause).clamp(FIRST, LONGEST);
        self.until = Some(Instant::now() + self.pause);
    }

    /// Begins a pause after the end of a connection that has lived so long. If it has outlived the last pause, the
    /// first pause begins.
    pub fn ended(&mut self, lived: Duration) {
        if lived > self.pause {
            self.pause = Duration::ZERO;
        }
        self.fail();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_a_long_life_starts_again() {
        let mut backoff = Backoff::default();
        assert!(backoff.is_over());
        let mut pauses = Vec::new();
        for _ in 0..13 {
            backoff.fail();
            pauses.push(backoff.pause.as_millis());
        }
        assert_eq!(pauses[..3], [50, 100, 200]);
        assert_eq!(pauses[11..], [60_000, 60_000]);
        assert!(!backoff.is_over());
        backoff.ended(Duration::from_secs(59));
        assert_eq!(backoff.pause, LONGEST);
        backoff.ended(Duration::from_secs(61));
        assert_eq!(backoff.pause, FIRST);
    }
}
