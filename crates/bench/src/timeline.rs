//! The rate over time, with a limited number of points.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::RoundProgress;
use crate::series::with_room;

/// An interval of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// End of the interval, since the measurement began.
    pub at_s: f64,
    /// Successful operations per second.
    pub per_second: f64,
    /// Failed operations.
    pub failed: u64,
}

/// With more points, neighbours are merged: a longer run is coarser, not larger.
const MOST: usize = 4096;

const UNWRITTEN: Point = Point {
    at_s: f64::NAN,
    per_second: f64::NAN,
    failed: u64::MAX,
};

/// The points so far.
pub struct Timeline {
    points: Vec<Point>,
    /// The minimum interval in seconds; the rate of a shorter one is noise.
    least: f64,
    last: RoundProgress,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            points: Vec::new(),
            least: 0.05,
            last: RoundProgress::default(),
        }
    }
}

impl Timeline {
    /// Adds the state of a round that began after `before` of measured time.
    pub fn watch(&mut self, before: Duration, seen: RoundProgress) {
        let took = seen.elapsed.saturating_sub(self.last.elapsed).as_secs_f64();
        // The report at the end of a round comes at any time.
        if took < self.least {
            return;
        }
        with_room(&mut self.points, MOST + 1, UNWRITTEN);
        self.points.push(Point {
            at_s: (before + seen.elapsed).as_secs_f64(),
            per_second: (seen.ops - self.last.ops) as f64 / took,
            failed: seen.failed - self.last.failed,
        });
        self.last = seen;
        if self.points.len() > MOST {
            self.halve();
        }
    }

    /// Ends a round: the next one counts from 0.
    pub fn next_round(&mut self) {
        self.last = RoundProgress::default();
    }

    /// The points, in the order of time.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    fn halve(&mut self) {
        let mut begin = 0.0;
        let count = self.points.len().div_ceil(2);
        for at in 0..count {
            let pair = &self.points[2 * at..self.points.len().min(2 * at + 2)];
            let end = pair.last().map_or(begin, |last| last.at_s);
            let mut start = begin;
            let mut ops = 0.0;
            for point in pair {
                ops += point.per_second * (point.at_s - start);
                start = point.at_s;
            }
            self.points[at] = Point {
                at_s: end,
                per_second: ops / (end - begin),
                failed: pair.iter().map(|point| point.failed).sum(),
            };
            begin = end;
        }
        self.points.truncate(count);
        // Reports come every 0.1 s: from now on every second one counts, then every fourth.
        self.least = (self.least * 2.0).max(0.15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_few_points_and_loses_nothing() {
        let mut timeline = Timeline::default();
        for sample in 1..=200_000_u64 {
            let seen = RoundProgress {
                elapsed: Duration::from_millis(100 * sample),
                ops: 7 * sample,
                failed: sample / 1000,
            };
            timeline.watch(Duration::ZERO, seen);
        }
        let points = timeline.points();
        assert!((1000..=MOST).contains(&points.len()), "{}", points.len());
        let failed: u64 = points.iter().map(|point| point.failed).sum();
        // The last reports may wait for their interval to be long enough.
        assert!((198..=200).contains(&failed), "{failed}");
        for point in points {
            assert!((point.per_second - 70.0).abs() < 1e-6, "{point:?}");
        }
    }
}
