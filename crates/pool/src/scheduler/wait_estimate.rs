//! Estimates how long a request would take that came now.

use std::time::{Duration, Instant};

use hsmux_token::{Estimate, Times};

use super::Scheduler;
use super::load::SeatLoad;
use crate::seatset::SeatSet;

/// The longest estimate, in seconds.
const LONGEST: f64 = 86_400.0;

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Estimates the wait of a use that comes now for these seats.
    pub fn estimate(&self, able: &SeatSet, now: Instant) -> Estimate {
        let is_awaited = self.queue.latest_within(able).is_some();
        let us = |wait: Duration| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let behind = |before| self.wait_estimate(able, before, now).map(us);
        let times = behind(1).zip(behind(2)).map(|(one, two)| {
            let each_us = two.saturating_sub(one);
            let alone = if is_awaited { behind(0) } else { None };
            Times {
                result_us: alone.unwrap_or_else(|| one.saturating_sub(each_us)),
                each_us,
            }
        });
        Estimate {
            members: able.bits(),
            capacity: self.key_capacity(able),
            is_awaited,
            times,
        }
    }

    /// Estimates the time of a request for any of these seats, its own operation included. `before` requests that wait
    /// elsewhere come first. `None` in these cases:
    ///
    /// - No request waits for these seats alone.
    /// - No seat is in service. One may be so soon.
    /// - One of the seats has not shown its speed lately. It may be faster than all others.
    ///
    /// The estimate is rather too short than too long. It is the least of three: all seats together, the best seat
    /// alone, and the time at which the waiting requests reach their deadlines.
    pub fn wait_estimate(&self, able: &SeatSet, before: usize, now: Instant) -> Option<Duration> {
        let last = self.queue.latest_within(able);
        if last.is_none() && before == 0 || able.is_empty() {
            return None;
        }
        let (mut running, mut rate, mut alone) = (0.0, 0.0, f64::INFINITY);
        for seat in able.iter() {
            let load = self.seats.get(seat)?.as_ref()?;
            let each = load.answer_interval.seconds(now)?;
            let (left, waiting) = (load.left(each, now), before + self.queue.len_for(seat));
            running += left;
            rate += each.recip();
            alone = alone.min((waiting as f64 + left + 1.0) * each);
        }
        let waiting = before + self.queue.len_within(able);
        let together = (waiting as f64 + running + 1.0) / rate;
        let last = last.filter(|_| before == 0).map_or(f64::INFINITY, |last| {
            last.saturating_duration_since(now).as_secs_f64()
        });
        let gone = last + (running + 1.0) / rate;
        let seconds = together.min(alone).min(gone);
        Some(Duration::from_secs_f64(seconds.min(LONGEST)))
    }
}

impl<W, C> SeatLoad<W, C> {
    /// The number of running operations that are not done yet, if one takes `each` seconds after the other.
    fn left(&self, each: f64, now: Instant) -> f64 {
        let Some(oldest) = self.running.iter().map(|run| run.started).min() else {
            return 0.0;
        };
        let since = now.saturating_duration_since(oldest.max(self.last));
        self.running.len() as f64 - (since.as_secs_f64() / each).min(1.0)
    }
}
