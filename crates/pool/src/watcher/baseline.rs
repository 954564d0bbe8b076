//! How fast a member does its work at best, and which of its connections became slower when its objects changed.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use hsmux_token::{ObjectId, OperationKind, OperationPace, entry};

/// Work is slow if it takes twice as long as at best, and this many nanoseconds longer.
const FLOOR: u64 = 4_000;

/// The number of looks in a row after which a pace counts.
const PERSISTENT: u32 = 2;

/// A connection is faster than its predecessor if it takes at most this percentage of its time.
const FASTER: u64 = 85;

/// The pace of a member and of its connections.
#[derive(Default)]
pub(super) struct Baselines {
    /// Nanoseconds at best, on any connection.
    best: HashMap<OperationKind, u64>,
    /// By generation.
    connections: HashMap<u64, ConnectionPace>,
}

/// The pace of a connection.
#[derive(Default)]
struct ConnectionPace {
    /// The member's objects have changed since it connected. Else another worker would be as slow.
    objects_changed: bool,
    works: HashMap<OperationKind, WorkPace>,
    /// It serves in place of a slow connection, and was not compared with it yet.
    replaces: Option<Slow>,
}

/// One kind of work on one connection.
#[derive(Default)]
struct WorkPace {
    /// Operations.
    count: u64,
    /// Looks with more operations.
    looks: u32,
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

/// What a connection's pace says.
#[derive(Debug)]
pub(super) enum PaceVerdict {
    /// It is slow.
    Slow(Slow),
    /// It is faster than the slow connection that it replaces.
    Faster,
    /// It is no faster than that one: the machine or the token has become slower.
    NoFaster,
}

impl Baselines {
    /// These connections serve; all others are forgotten.
    pub fn serve_by(&mut self, generations: &[u64]) {
        self.connections
            .retain(|generation, _| generations.contains(generation));
        for generation in generations {
            self.connections.entry(*generation).or_default();
        }
    }

    /// The member has other objects than before.
    pub fn objects_have_changed(&mut self) {
        for connection in self.connections.values_mut() {
            connection.objects_changed = true;
        }
    }

    /// This connection serves in place of a slow one.
    pub fn replaced(&mut self, generation: u64, slow: &Slow) {
        let connection = self.connections.entry(generation).or_default();
        connection.replaces = Some(slow.clone());
    }

    /// Adds the measurements of a connection. Answers with the slowest work that has been slow in several looks.
    pub fn judge(&mut self, generation: u64, paces: &[OperationPace]) -> Option<PaceVerdict> {
        let connection = self.connections.entry(generation).or_default();
        let mut slowest: Option<Slow> = None;
        for pace in paces {
            let work = connection.works.entry(pace.work).or_default();
            if std::mem::replace(&mut work.count, pace.count) == pace.count {
                continue;
            }
            work.looks += 1;
            let best = self.best.entry(pace.work).or_insert(pace.nanos);
            *best = (*best).min(pace.nanos);
            if work.looks >= PERSISTENT
                && let Some(slow) = connection.replaces.take_if(|slow| slow.work == pace.work)
            {
                let is_faster =
                    u128::from(pace.nanos) * 100 <= slow.now.as_nanos() * u128::from(FASTER);
                if !is_faster {
                    self.accept(pace);
                    return Some(PaceVerdict::NoFaster);
                }
                return Some(PaceVerdict::Faster);
            }
            let is_slow = pace.nanos > 2 * *best + FLOOR && connection.objects_changed;
            work.slow = if is_slow { work.slow + 1 } else { 0 };
            if work.slow >= PERSISTENT {
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
        slowest.map(PaceVerdict::Slow)
    }

    /// This is the best from now on.
    fn accept(&mut self, pace: &OperationPace) {
        self.best.insert(pace.work, pace.nanos);
        for connection in self.connections.values_mut() {
            if let Some(work) = connection.works.get_mut(&pace.work) {
                work.slow = 0;
            }
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

    fn slow(verdict: Option<PaceVerdict>) -> Slow {
        match verdict {
            Some(PaceVerdict::Slow(slow)) => slow,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_connection_is_slow_if_it_stays_at_twice_the_best_after_objects_changed() {
        let mut baselines = Baselines::default();
        baselines.serve_by(&[1]);
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
        let slow = slow(baselines.judge(1, &pace(60, 296)));
        assert_eq!(slow.best, Duration::from_micros(20));
        assert!(slow.to_string().contains("60 us"), "{slow}");
        // Another connection came after the change.
        for count in 1..5 {
            assert!(baselines.judge(2, &pace(60, 32 * count)).is_none());
        }
    }

    #[test]
    fn a_connection_that_was_never_fast_is_compared_with_the_others() {
        let mut baselines = Baselines::default();
        baselines.serve_by(&[1, 2]);
        baselines.judge(1, &pace(20, 32));
        baselines.objects_have_changed();
        baselines.judge(2, &pace(60, 32));
        slow(baselines.judge(2, &pace(60, 64)));
    }

    #[test]
    fn a_successor_that_is_no_faster_sets_the_best() {
        let mut baselines = Baselines::default();
        baselines.serve_by(&[1, 2]);
        baselines.judge(1, &pace(20, 32));
        baselines.objects_have_changed();
        for connection in [1, 2] {
            baselines.judge(connection, &pace(60, 64));
        }
        let slow = slow(baselines.judge(1, &pace(60, 96)));
        baselines.serve_by(&[2, 3]);
        baselines.replaced(3, &slow);
        assert!(baselines.judge(3, &pace(58, 32)).is_none());
        let verdict = baselines.judge(3, &pace(58, 64));
        assert!(
            matches!(verdict, Some(PaceVerdict::NoFaster)),
            "{verdict:?}"
        );
        baselines.objects_have_changed();
        for count in 4..10 {
            assert!(baselines.judge(2, &pace(61, count * 32)).is_none());
            assert!(baselines.judge(3, &pace(61, count * 32)).is_none());
        }
    }

    #[test]
    fn a_successor_that_is_faster_is_said_once() {
        let mut baselines = Baselines::default();
        let slow = Slow {
            work: pace(60, 1)[0].work,
            key: pace(60, 1)[0].key,
            now: Duration::from_micros(60),
            best: Duration::from_micros(20),
        };
        baselines.replaced(3, &slow);
        assert!(baselines.judge(3, &pace(50, 32)).is_none());
        let verdict = baselines.judge(3, &pace(50, 64));
        assert!(matches!(verdict, Some(PaceVerdict::Faster)), "{verdict:?}");
        assert!(baselines.judge(3, &pace(50, 96)).is_none());
    }
}
