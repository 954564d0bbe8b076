//! How long operations took, by classes of time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How many operations took how long.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// One class for each bound, and one for all that took longer.
    counts: [u64; CLASSES],
    nanos: u64,
}

const CLASSES: usize = Spread::BOUNDS_US.len() + 1;

impl Spread {
    /// The longest time of each class but the last, in microseconds.
    pub const BOUNDS_US: [u64; 16] = [
        50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
        1_000_000, 2_000_000, 5_000_000,
    ];

    pub(super) fn add(&mut self, nanos: u64) {
        let class = Self::BOUNDS_US.partition_point(|bound| bound * 1000 < nanos);
        self.counts[class] += 1;
        self.nanos = self.nanos.saturating_add(nanos);
    }

    /// All operations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time of all together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// Each bound, with the number of operations that took no longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let bounds = Self::BOUNDS_US.iter().zip(self.counts);
        bounds.scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((Duration::from_micros(*bound), *sum))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_class_that_it_fits() {
        let mut spread = Spread::default();
        for nanos in [0, 50_000, 50_001, 5_000_000_000, 5_000_000_001] {
            spread.add(nanos);
        }
        let cumulative: Vec<_> = spread.cumulative().map(|(_, count)| count).collect();
        assert_eq!(cumulative[..3], [2, 3, 3]);
        assert_eq!(cumulative[15], 4);
        assert_eq!(spread.count(), 5);
        assert_eq!(spread.sum(), Duration::from_nanos(10_000_100_002));
    }
}
