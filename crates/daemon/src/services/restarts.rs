//! When a service that has ended is started again.

use std::time::Duration;

/// After the first end.
const FIRST: Duration = Duration::from_millis(100);

/// At most.
const LONGEST: Duration = Duration::from_secs(10);

/// One that has run for so long has recovered.
const RECOVERED: Duration = Duration::from_secs(30);

/// Pauses between an end and the next start.
#[derive(Default)]
pub struct Restarts {
    last: Option<Duration>,
}

impl Restarts {
    /// It has ended after it ran for so long: answers the pause before its next start, twice the one before unless it
    /// had recovered.
    pub fn pause(&mut self, ran: Duration) -> Duration {
        let pause = match self.last {
            Some(last) if ran < RECOVERED => (last * 2).min(LONGEST),
            _ => FIRST,
        };
        self.last = Some(pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_again_and_again_is_started_ever_more_rarely() {
        let mut restarts = Restarts::default();
        let pauses: Vec<_> = (0..10)
            .map(|_| restarts.pause(Duration::ZERO).as_millis())
            .collect();
        let expected = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000];
        assert_eq!(pauses, expected);
        assert_eq!(restarts.pause(RECOVERED), FIRST);
        assert_eq!(restarts.pause(Duration::ZERO), 2 * FIRST);
    }
}
