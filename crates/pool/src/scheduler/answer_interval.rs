//! The average time between two answers of a busy seat.
//!
//! This follows from Little's law. An operation that takes a lane just when another has left it shows the interval: its
//! time divided by the number of lanes. A card that does one thing at a time answers the last of four after four times
//! its time; a seat that does four at once answers it after its time. An operation that runs while lanes are free shows
//! only an upper bound.

use std::time::{Duration, Instant};

/// Moving average of the time between two answers while all lanes are taken.
#[derive(Default)]
pub(super) struct AnswerInterval(Option<Average>);

struct Average {
    /// In seconds.
    each: f64,
    /// The time of the last measurement.
    at: Instant,
}

/// A measurement is used for this long. Later the token may have other work, or none.
pub(super) const GOOD_FOR: Duration = Duration::from_secs(60);

/// The weight of one measurement: a shorter interval is believed sooner than a longer one.
const FASTER: f64 = 0.25;
const SLOWER: f64 = 0.125;

impl AnswerInterval {
    /// Records the duration of an operation that began as one of `among`, none of them half done, on a seat with so
    /// many lanes.
    pub fn learn(&mut self, took: Duration, among: usize, lanes: usize, now: Instant) {
        let seen = took.as_secs_f64() / among.max(1) as f64;
        let full = among >= lanes;
        let each = match self.seconds(now) {
            Some(each) if seen < each => each + (seen - each) * FASTER,
            Some(each) if full => each + (seen - each) * SLOWER,
            None if full => seen,
            _ => return,
        };
        self.0 = Some(Average { each, at: now });
    }

    /// The interval in seconds. `None` if there is no recent measurement.
    pub fn seconds(&self, now: Instant) -> Option<f64> {
        let known = self.0.as_ref()?;
        (now.saturating_duration_since(known.at) <= GOOD_FOR).then_some(known.each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// After these operations of four lanes, by the seconds that each took.
    fn after(took: &[u32], now: Instant) -> Option<f64> {
        let mut interval = AnswerInterval::default();
        for seconds in took {
            interval.learn(SECOND * *seconds, 4, 4, now);
        }
        interval.seconds(now)
    }

    #[test]
    fn a_lane_of_four_takes_four_times_as_long_as_one_answer_does() {
        let now = Instant::now();
        assert_eq!(after(&[], now), None);
        assert_eq!(after(&[8], now), Some(2.0));
        assert_eq!(after(&[8, 8], now), Some(2.0));
    }

    #[test]
    fn faster_is_believed_sooner_than_slower() {
        let now = Instant::now();
        assert_eq!(after(&[8, 16], now), Some(2.25));
        assert_eq!(after(&[16, 8], now), Some(3.5));
    }

    #[test]
    fn a_seat_with_a_free_lane_shows_only_that_it_is_faster() {
        let now = Instant::now();
        let mut interval = AnswerInterval::default();
        interval.learn(SECOND * 8, 2, 4, now);
        assert_eq!(interval.seconds(now), None);
        interval.learn(SECOND * 8, 4, 4, now);
        interval.learn(SECOND * 8, 2, 4, now);
        assert_eq!(interval.seconds(now), Some(2.0));
        interval.learn(SECOND * 2, 2, 4, now);
        assert_eq!(interval.seconds(now), Some(1.75));
    }

    #[test]
    fn what_nobody_has_seen_lately_is_not_known() {
        let now = Instant::now();
        let mut interval = AnswerInterval::default();
        interval.learn(SECOND * 8, 1, 1, now);
        assert_eq!(interval.seconds(now + GOOD_FOR), Some(8.0));
        let later = now + GOOD_FOR + SECOND;
        assert_eq!(interval.seconds(later), None);
        interval.learn(SECOND, 1, 1, later);
        assert_eq!(interval.seconds(later), Some(1.0));
    }
}
