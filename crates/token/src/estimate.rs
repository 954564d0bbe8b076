//! How much the members that serve a key can do, and how long a use of it would wait.

use std::time::Duration;

use minicbor::{Decode, Encode};

/// Members of a pool by their number, as bits. For others it is a name: what keys have the same members wait for the
/// same.
pub type Members = [u64; 4];

/// How many uses of a key its members can work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct KeyCapacity {
    /// Uses at once that leave no lane without work; at least 1.
    #[n(0)]
    pub uses: usize,
    /// Members in service; at least 1.
    #[n(1)]
    pub members: usize,
}

/// A pool's estimate for a use of a key that comes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Estimate {
    /// Who serves the key.
    #[n(0)]
    pub members: Members,
    /// How many uses keep them busy: a caller with more of them can keep the others back.
    #[n(1)]
    pub capacity: KeyCapacity,
    /// Whether any request waits for these members alone.
    #[n(2)]
    pub is_awaited: bool,
    /// When they are known.
    #[n(3)]
    pub times: Option<Times>,
}

/// What is known of the time that members take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Times {
    /// Until the result of a use that comes now, its own time included, in microseconds.
    #[n(0)]
    pub result_us: u64,
    /// What each other one before it adds, in microseconds.
    #[n(1)]
    pub each_us: u64,
}

impl Estimate {
    /// How long a use would take, if `before` others come first that their caller keeps back. `None`: it would not wait,
    /// or nobody knows.
    #[must_use]
    pub fn wait(&self, before: usize) -> Option<Duration> {
        if before == 0 && !self.is_awaited {
            return None;
        }
        let Times { result_us, each_us } = self.times?;
        let before = u64::try_from(before).unwrap_or(u64::MAX);
        let us = result_us.saturating_add(each_us.saturating_mul(before));
        Some(Duration::from_micros(us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_behind_others_waits_for_their_time_as_well() {
        let mut estimate = Estimate {
            members: [1, 0, 0, 0],
            capacity: KeyCapacity {
                uses: 1,
                members: 1,
            },
            is_awaited: false,
            times: Some(Times {
                result_us: 1_500_000,
                each_us: 1_000_000,
            }),
        };
        assert_eq!(estimate.wait(0), None);
        assert_eq!(estimate.wait(2), Some(Duration::from_millis(3_500)));
        estimate.is_awaited = true;
        assert_eq!(estimate.wait(0), Some(Duration::from_millis(1_500)));
        estimate.times = None;
        assert_eq!(estimate.wait(2), None);
    }
}
