//! Progress of a run.

use std::time::Duration;

use super::Until;
use super::round::{RoundProgress, Setup};

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The load before the measurement.
    WarmUp,
    /// The measurement.
    Measure,
    /// Checks of the answers.
    Check,
}

/// Progress within a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Finished operations, or checked answers, of this phase.
    pub done: u64,
    /// Their total, if known.
    pub of: Option<u64>,
    /// Failed operations of this phase.
    pub failed: u64,
    /// Time since the start of the phase.
    pub elapsed: Duration,
    /// The estimated remaining time.
    pub left: Option<Duration>,
}

impl Progress {
    /// Finished per second so far.
    pub fn per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            self.done as f64 / seconds
        } else {
            0.0
        }
    }

    pub(super) fn of(setup: &Setup<'_>, seen: RoundProgress) -> Self {
        let (of, left) = match setup.until {
            Until::Count(count) => (
                Some(count),
                estimate(seen.ops + seen.failed, count, seen.elapsed),
            ),
            Until::Elapsed(time) => (None, Some(time.saturating_sub(seen.elapsed))),
        };
        Self {
            phase: setup.phase,
            done: seen.ops,
            of,
            failed: seen.failed,
            elapsed: seen.elapsed,
            left,
        }
    }

    pub(super) fn of_check(done: u64, of: u64, elapsed: Duration) -> Self {
        Self {
            phase: Phase::Check,
            done,
            of: Some(of),
            failed: 0,
            elapsed,
            left: estimate(done, of, elapsed),
        }
    }
}

/// From the rate so far; `None` without one.
fn estimate(done: u64, of: u64, elapsed: Duration) -> Option<Duration> {
    let rate = done as f64 / elapsed.as_secs_f64();
    let seconds = of.saturating_sub(done) as f64 / rate;
    Duration::try_from_secs_f64(seconds).ok()
}
