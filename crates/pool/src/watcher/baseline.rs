//! How fast each connection does its work at best, and which became slower when the member's objects changed.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use hsmux_token::{ObjectId, OperationKind, OperationPace, entry};

/// Work is slow if it takes twice as long as at best, and this many nanoseconds longer.
const FLOOR: u64 = 4_000;

/// The number of looks in a row in which work has to be slow.
const PERSISTENT: u32 = 2;

/// The pace of each connection of a member.
#[derive(Default)]
pub(super) struct Baselines {
    /// By generation.
    connections: HashMap<u64, ConnectionPace>,
}

/// The pace of a connection.
#[derive(Default)]
struct ConnectionPace {
    /// The member's objects have changed since it connected. Else another worker would be as slow.
    objects_changed: bool,
    works: HashMap<OperationKind, WorkPace>,
}

/// One kind of work on one connection.
struct WorkPace {
    /// Nanoseconds at best.
    best: u64,
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
    /// Its duration at best, on this connection.
    pub best: Duration,
}

impl Baselines {
    /// Forgets all other connections.
    pub fn keep(&mut self, generations: &[u64]) {
        self.connections
            .retain(|generation, _| generations.contains(generation));
    }

    /// The member has other objects than before.
    pub fn objects_have_changed(&mut self) {
        for connection in self.connections.values_mut() {
            connection.objects_changed = true;
        }
    }

    /// Adds the measurements of a connection. Answers the slowest work that has been slow in several looks.
    pub fn judge(&mut self, generation: u64, paces: &[OperationPace]) -> Option<Slow> {
        let connection = self.connections.entry(generation).or_default();
        let mut slowest: Option<Slow> = None;
        for pace in paces {
            let work = connection.works.entry(pace.work).or_insert(WorkPace {
                best: pace.nanos,
                count: 0,
                slow: 0,
            });
            if std::mem::replace(&mut work.count, pace.count) == pace.count {
                continue;
            }
            work.best = work.best.min(pace.nanos);
            let is_slow = pace.nanos > 2 * work.best + FLOOR && connection.objects_changed;
            work.slow = if is_slow { work.slow + 1 } else { 0 };
            if work.slow >= PERSISTENT {
                let found = Slow {
                    work: pace.work,
                    key: pace.key,
                    now: Duration::from_nanos(pace.nanos),
                    best: Duration::from_nanos(work.best),
                };
                let worse = slowest.as_ref().is_none_or(|s| s.ratio() < found.ratio());
                slowest = if worse { Some(found) } else { slowest };
            }
        }
        slowest
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
    fn a_connection_is_slow_if_it_stays_at_twice_its_best_after_objects_changed() {
        let mut baselines = Baselines::default();
        assert!(baselines.judge(1, &pace(20, 32)).is_none());
        for count in 2..5 {
            assert!(baselines.judge(1, &pace(60, 32 * count)).is_none());
        }
        baselines.objects_have_changed();
        // Slow in one look, or no work since, is no trouble.
        assert!(baselines.judge(1, &pace(60, 200)).is_none());
        assert!(baselines.judge(1, &pace(60, 200)).is_none());
        assert!(baselines.judge(1, &pace(43, 232)).is_none(), "not twice");
        assert!(baselines.judge(1, &pace(60, 264)).is_none());
        let slow = baselines.judge(1, &pace(60, 296)).expect("slow");
        assert_eq!(slow.best, Duration::from_micros(20));
        assert!(slow.to_string().contains("60 us"), "{slow}");
        // Another connection has a best of its own, and came after the change.
        for count in 1..5 {
            assert!(baselines.judge(2, &pace(60, 32 * count)).is_none());
        }
        baselines.objects_have_changed();
        for count in 5..8 {
            assert!(baselines.judge(2, &pace(110, 32 * count)).is_none());
        }
    }
}
