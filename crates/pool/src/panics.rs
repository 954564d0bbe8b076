//! A panic ends one piece of work, not the thread that does one after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use hsmux_token::{Error, Result};

/// How long a thread rests after a panic: its next round may end in the same one.
const REST: Duration = Duration::from_millis(100);

/// What a panic comes to: an error of the connection, so that its seat is tried again.
pub(crate) fn or_panicked<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::lost("ended in a panic; the log says where")))
}

/// One round of a thread that goes on whatever becomes of it. `None` after a panic, which is logged, and after a
/// rest.
pub fn one_round<T>(of: &str, round: impl FnOnce() -> T) -> Option<T> {
    match or_panicked(|| Ok(round())) {
        Ok(done) => Some(done),
        Err(error) => {
            tracing::error!("a round of {of} {error}; it goes on");
            thread::sleep(REST);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_panic_is_a_round_without_an_outcome_and_a_rest() {
        assert_eq!(one_round("a test", || 7), Some(7));
        let begun = Instant::now();
        assert_eq!(one_round("a test", || -> u8 { panic!("one round") }), None);
        assert!(begun.elapsed() >= REST);
    }
}
