//! Delays as long as a card's operations.

use std::time::{Duration, Instant};

use crate::key::KeyKind;
use crate::timing::{Operation, Timing};

/// Draws service times. It carries over the error of each wait, so that many add up exactly.
pub struct DelaySampler {
    timing: Timing,
    /// The deviation for the next operation, with the opposite sign: pairs have the exact mean.
    opposite: Option<f64>,
    /// How much too long the last operation took.
    late: Duration,
}

impl DelaySampler {
    /// For these service times.
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            opposite: None,
            late: Duration::ZERO,
        }
    }

    /// The end of an operation that began at `start`; `None` if at once.
    pub fn end(&mut self, start: Instant, operation: Operation, key: KeyKind) -> Option<Instant> {
        let service = self.timing.service(operation, key)?;
        let deviation = service.sd_ms * self.deviation();
        // The same bound on both sides keeps the mean.
        let deviation = deviation.clamp(-service.mean_ms, service.mean_ms);
        let time = Duration::from_secs_f64((service.mean_ms + deviation) / 1000.0);
        Some(start + time.saturating_sub(self.late))
    }

    /// Records how late the wait until `end` returned.
    pub fn ended(&mut self, end: Instant, now: Instant) {
        // A longer pause of the machine is not made up for, since no card would be faster after it.
        const LIMIT: Duration = Duration::from_millis(20);
        let late = now.saturating_duration_since(end);
        self.late = if late < LIMIT { late } else { Duration::ZERO };
    }

    /// A random number of mean 0 and standard deviation 1, between -3 and 3.
    fn deviation(&mut self) -> f64 {
        if let Some(opposite) = self.opposite.take() {
            return -opposite;
        }
        let uniform = |bytes: [u8; 4]| f64::from(u32::from_be_bytes(bytes)) / 2f64.powi(31) - 1.0;
        let sum: f64 = (0..3).map(|_| uniform(crate::crypto::random())).sum();
        self.opposite = Some(sum);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_spread_and_their_mean_is_exact() {
        let mut delay = DelaySampler::new(Timing::SmartCardHsm);
        let start = Instant::now();
        let mut time = || {
            let end = delay
                .end(start, Operation::Sign, KeyKind::Rsa(2048))
                .unwrap();
            (end - start).as_secs_f64() * 1000.0
        };
        let times: Vec<f64> = (0..1000).map(|_| time()).collect();
        let mean = times.iter().sum::<f64>() / 1000.0;
        assert!((mean - 658.0).abs() < 0.001, "{mean}");
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / 1000.0;
        let sd = variance.sqrt();
        assert!((10.0..17.0).contains(&sd), "{sd}");
    }

    #[test]
    fn a_wait_that_was_long_makes_the_next_one_short() {
        let timing = Timing::from_toml("[[time]]\nmean_ms = 50").unwrap();
        let mut delay = DelaySampler::new(timing);
        let start = Instant::now();
        let mut end = |late: u64| {
            let end = delay.end(start, Operation::Sign, KeyKind::Ec(256)).unwrap();
            delay.ended(end, end + Duration::from_millis(late));
            (end - start).as_millis()
        };
        assert_eq!(end(7), 50);
        assert_eq!(end(500), 43);
        assert_eq!(end(0), 50);
    }
}
