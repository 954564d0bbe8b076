//! Repeated failures of one client on a trail: the first ones of a minute are lines, the others a number. A client
//! without rights cannot fill the trail.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Map, Value};

/// Current counts, each since its first time.
pub struct Repeats<K>(Mutex<HashMap<Option<K>, RepeatTally>>);

struct RepeatTally {
    since: Instant,
    heard: u64,
    more: u64,
}

/// A count since the first time, and the seconds since then.
#[derive(Clone, Copy, Debug)]
pub struct RepeatCount {
    more: u64,
    seconds: u64,
}

/// The time of counting, before the count becomes a line.
const MINUTE: Duration = Duration::from_secs(60);

/// The number of separate counts; the rest is counted under `None`.
const MANY: usize = 1000;

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Repeats<K> {
    /// Counts one; returns whether it has a line to itself. `None` means all clients that cannot be told apart.
    pub fn is_first(&self, who: Option<K>) -> bool {
        self.is_among(who, 1)
    }

    /// The same, when all separate counts are in use.
    pub fn is_among(&self, who: Option<K>, lines: u64) -> bool {
        let mut tallies = self.0.lock();
        let crowded = tallies.len() >= MANY && !tallies.contains_key(&who);
        let tally = tallies
            .entry(who.filter(|_| !crowded))
            .or_insert(RepeatTally {
                since: Instant::now(),
                heard: 0,
                more: 0,
            });
        let heard = tally.heard < lines;
        tally.heard += u64::from(heard);
        tally.more += u64::from(!heard);
        heard
    }

    /// The counts of those whose minute is over, or of all at the end.
    pub fn over(&self, end: bool) -> Vec<(Option<K>, RepeatCount)> {
        let mut tallies = self.0.lock();
        let over = tallies.extract_if(|_, tally| end || tally.since.elapsed() >= MINUTE);
        let counted = over.filter(|(_, tally)| tally.more > 0);
        counted.map(|(who, tally)| (who, tally.count())).collect()
    }
}

impl RepeatTally {
    fn count(&self) -> RepeatCount {
        RepeatCount {
            more: self.more,
            seconds: self.since.elapsed().as_secs().max(1),
        }
    }
}

impl RepeatCount {
    /// The fields of the count's line.
    pub fn fields(self) -> Map<String, Value> {
        let fields = [("count", self.more), ("seconds", self.seconds)];
        let fields = fields.map(|(name, number)| (name.to_owned(), Value::from(number)));
        fields.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_and_the_number_of_the_others() {
        let repeats = Repeats::default();
        let [one, other] = [Some(1), Some(2)];
        assert!(repeats.is_first(one) && repeats.is_first(other));
        assert!(!repeats.is_first(one) && !repeats.is_first(one));
        assert!(repeats.over(false).is_empty(), "its minute is not over");
        let [(who, count)] = repeats.over(true)[..] else {
            panic!("one was counted");
        };
        assert_eq!(who, one);
        assert_eq!(count.fields()["count"], 2);
        assert!(repeats.is_first(one), "another minute");
    }

    #[test]
    fn a_minute_is_over_after_sixty_seconds() {
        let repeats = Repeats::default();
        let begun_before = |seconds| {
            let begin = Instant::now().checked_sub(Duration::from_secs(seconds));
            repeats.0.lock().get_mut(&Some(1)).unwrap().since = begin.unwrap();
        };
        assert!(repeats.is_first(Some(1)) && !repeats.is_first(Some(1)));
        begun_before(50);
        assert!(repeats.over(false).is_empty());
        begun_before(60);
        assert_eq!(repeats.over(false).len(), 1);
        assert!(repeats.is_first(Some(1)));
    }

    #[test]
    fn more_of_them_have_lines_where_more_may() {
        let repeats = Repeats::default();
        let lines = (0..5).filter(|_| repeats.is_among(Some(1), 3));
        assert_eq!(lines.count(), 3);
        let [(Some(1), count)] = repeats.over(true)[..] else {
            panic!("one was counted");
        };
        assert_eq!(count.fields()["count"], 2);
    }

    #[test]
    fn however_many_there_are() {
        let repeats = Repeats::default();
        let first = |who: &usize| repeats.is_first(Some(*who));
        assert_eq!((0..2 * MANY).filter(first).count(), MANY + 1);
        let [(None, count)] = repeats.over(true)[..] else {
            panic!("only the others came more than once");
        };
        assert_eq!(count.fields()["count"], MANY - 1);
    }
}
