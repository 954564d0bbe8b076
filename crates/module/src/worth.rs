//! How long a result is used, by the time that it took.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Large enough to make that time negligible, small enough to notice when it grows.
const TIMES: u32 = 200;

/// Two hundred times the duration, within these bounds.
pub(crate) fn worth(took: Duration, bounds: &RangeInclusive<Duration>) -> Duration {
    took.saturating_mul(TIMES)
        .clamp(*bounds.start(), *bounds.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_used_long_within_bounds() {
        let bounds = Duration::from_millis(20)..=Duration::from_secs(1);
        let worth = |took| worth(took, &bounds);
        assert_eq!(worth(Duration::ZERO), Duration::from_millis(20));
        assert_eq!(
            worth(Duration::from_micros(500)),
            Duration::from_millis(100)
        );
        assert_eq!(worth(Duration::from_secs(2)), Duration::from_secs(1));
        assert_eq!(worth(Duration::MAX), Duration::from_secs(1));
    }
}
