//! The times at which sources want to be called: one of each source, however often it asks.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// The next time of each source.
#[derive(Default)]
pub(super) struct Timers {
    /// Soonest first.
    queue: BTreeSet<(Instant, u64)>,
    of_sources: HashMap<u64, Instant>,
}

impl Timers {
    /// Sets a source's time, unless it has an earlier one. True if it is the first of all.
    pub fn set(&mut self, at: Instant, source: u64) -> bool {
        if let Some(before) = self.of_sources.get(&source) {
            if *before <= at {
                return false;
            }
            self.queue.remove(&(*before, source));
        }
        self.of_sources.insert(source, at);
        self.queue.insert((at, source));
        self.next() == Some(at)
    }

    /// Forgets a source's time.
    pub fn remove(&mut self, source: u64) {
        if let Some(at) = self.of_sources.remove(&source) {
            self.queue.remove(&(at, source));
        }
    }

    /// The first time of all.
    pub fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes out a source whose time has come.
    pub fn take_due(&mut self, now: Instant) -> Option<u64> {
        self.next().filter(|at| *at <= now)?;
        let (_, source) = self.queue.pop_first()?;
        self.of_sources.remove(&source);
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_source_has_one_time_however_often_it_asks() {
        let mut timers = Timers::default();
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        for seconds in (1..100).rev() {
            assert!(timers.set(after(seconds), 7), "the first of all");
            assert!(!timers.set(after(seconds + 1), 7), "it has an earlier one");
        }
        assert!(!timers.set(after(50), 8));
        assert_eq!(timers.take_due(now), None);
        assert_eq!(timers.take_due(after(200)), Some(7));
        assert_eq!(timers.take_due(after(200)), Some(8));
        assert_eq!((timers.take_due(after(200)), timers.next()), (None, None));
        assert!(timers.set(after(60), 7), "it may ask again");
        timers.remove(7);
        timers.remove(8);
        assert_eq!((timers.take_due(after(200)), timers.next()), (None, None));
    }
}
