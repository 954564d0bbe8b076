//! What a person sees while a run goes on.

use std::time::Duration;

use super::Until;
use super::round::{Seen, Setup};

/// What the engine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The load before the measurement.
    WarmUp,
    /// The measurement.
    Measure,
    /// The answers are being checked.
    Check,
}

/// How far the phase is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What the engine is doing.
    pub phase: Phase,
    /// Operations done, or answers checked, in this phase.
    pub done: u64,
    /// How many there are, where that is known.
    pub of: Option<u64>,
    /// Operations that failed in this phase.
    pub failed: u64,
    /// Since the phase began.
    pub elapsed: Duration,
    /// An estimate of what remains.
    pub left: Option<Duration>,
}

impl Progress {
    /// Done per second, so far.
    pub fn per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            self.done as f64 / seconds
        } else {
            0.0
        }
    }

    pub(super) fn of(setup: &Setup<'_>, seen: Seen) -> Self {
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

/// At the rate so far; `None` before there is one.
fn estimate(done: u64, of: u64, elapsed: Duration) -> Option<Duration> {
    let rate = done as f64 / elapsed.as_secs_f64();
    let seconds = of.saturating_sub(done) as f64 / rate;
    Duration::try_from_secs_f64(seconds).ok()
}
