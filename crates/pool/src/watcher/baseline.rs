//! How fast a member does its work at best, and which connections are slower.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use hsmux_token::{ObjectId, OperationKind, OperationPace, entry};

/// Work is slow if it takes a quarter and this many nanoseconds longer than the best. A comparison with a fresh worker
/// then decides.
const FLOOR: u64 = 4_000;

/// The number of looks in a row in which work has to be slow.
const PERSISTENT: u32 = 2;

/// The best time of each kind of work on one member, and the last state of each of its connections.
#[derive(Default)]
pub(super) struct Baselines {
    best: HashMap<OperationKind, u64>,
    /// By generation.
    seen: HashMap<u64, HashMap<OperationKind, Last>>,
}

/// One kind of work on one connection.
#[derive(Default)]
struct Last {
    count: u64,
    /// Looks in a row in which it was slow.
    slow: u32,
}

/// Work that is slow.
#[derive(Clone, Debug)]
pub(super) struct Slow {
    pub work: OperationKind,
    /// A key of this work.
    pub key: ObjectId,
    /// Its duration now.
    pub now: Duration,
    /// Its duration at best.
    pub best: Duration,
}

impl Baselines {
    /// Forgets all other connections.
    pub fn keep(&mut self, generations: &[u64]) {
        self.seen
            .retain(|generation, _| generations.contains(generation));
    }

    /// Adds the measurements of a connection. Answers the slowest work that has been slow in several looks.
    pub fn judge(&mut self, generation: u64, paces: &[OperationPace]) -> Option<Slow> {
        let seen = self.seen.entry(generation).or_default();
        let mut slowest: Option<Slow> = None;
        for pace in paces {
            let last = seen.entry(pace.work).or_default();
            if std::mem::replace(&mut last.count, pace.count) == pace.count {
                continue;
            }
            let best = self.best.entry(pace.work).or_insert(pace.nanos);
            *best = (*best).min(pace.nanos);
            let slow = pace.nanos > *best + *best / 4 + FLOOR;
            last.slow = if slow { last.slow + 1 } else { 0 };
            if last.slow >= PERSISTENT {
                let found = Slow {
                    work: pace.work,
                    key: pace.key,
                    now: Duration::from_nanos(pace.nanos),
                    best: Duration::from_nanos(*best),
                };
                let worse = slowest.as_ref().is_none_or(|s| s.ratio() < found.ratio());
                slowest = if worse { Some(found) } else { slowest };
            }
        }
        slowest
    }

    /// A fresh worker is no faster, so this is the best from now on: the machine has changed, or is busy.
    pub fn accept(&mut self, slow: &Slow) {
        self.best.insert(slow.work, slow.now.as_nanos() as u64);
        for seen in self.seen.values_mut() {
            seen.remove(&slow.work);
        }
    }
}

impl Slow {
    fn ratio(&self) -> f64 {
        self.now.as_secs_f64() / self.best.as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mechanism = entry(self.work.mechanism).map_or("a mechanism", |entry| entry.name);
        let (now, best) = (self.now.as_micros(), self.best.as_micros());
        write!(f, "{mechanism} takes {now} us, and took {best} us at best")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsmux_token::{Verb, ck};

    fn pace(micros: u64, count: u64) -> Vec<OperationPace> {
        vec![OperationPace {
            work: OperationKind::new(Verb::Encrypt, ck::CKM_AES_CBC, 256, 256),
            key: ObjectId::of_secret_key(ck::CKK_AES, b"id", b"kcv"),
            nanos: micros * 1000,
            count,
        }]
    }

    #[test]
    fn a_connection_is_slow_if_it_stays_slower_than_the_best_of_the_member() {
        let mut baselines = Baselines::default();
        assert!(baselines.judge(1, &pace(20, 32)).is_none());
        // Slow in one look, or no work since, is no trouble.
        assert!(baselines.judge(1, &pace(60, 64)).is_none());
        assert!(baselines.judge(1, &pace(60, 64)).is_none());
        assert!(baselines.judge(1, &pace(22, 96)).is_none());
        assert!(baselines.judge(1, &pace(60, 128)).is_none());
        let slow = baselines.judge(1, &pace(60, 160)).expect("slow");
        assert_eq!(slow.best, Duration::from_micros(20));
        assert!(slow.to_string().contains("60 us"), "{slow}");
        // A connection that was never fast is compared with the best of the others.
        assert!(baselines.judge(2, &pace(60, 32)).is_none());
        assert!(baselines.judge(2, &pace(60, 64)).is_some());
    }

    #[test]
    fn an_accepted_duration_is_the_new_best() {
        let mut baselines = Baselines::default();
        baselines.judge(1, &pace(20, 32));
        baselines.judge(1, &pace(60, 64));
        let slow = baselines.judge(1, &pace(60, 96)).expect("slow");
        baselines.accept(&slow);
        for count in 4..10 {
            assert!(baselines.judge(1, &pace(61, count * 32)).is_none());
        }
        for count in 10..12 {
            baselines.judge(1, &pace(120, count * 32));
        }
        assert!(baselines.judge(1, &pace(120, 400)).is_some());
    }
}
