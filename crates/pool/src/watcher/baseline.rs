//! How fast a member does its work at best, and which of its connections became slower when its objects changed.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use hsmux_token::{ObjectId, OperationKind, OperationPace, entry};

/// Work is slow if it takes twice as long as at best, and this many nanoseconds longer.
const FLOOR: u64 = 4_000;

/// The number of looks in a row after which a pace counts.
const PERSISTENT: u32 = 2;

/// A connection that is new may have read the token before a change of so many looks ago.
const RECENT: u32 = 60;

/// The most kinds of work that are remembered of a connection and of a member.
const KINDS: usize = 64;

/// The pace of a member and of its connections.
pub(super) struct Baselines {
    /// Nanoseconds at best, on any connection.
    best: HashMap<OperationKind, u64>,
    /// By generation.
    connections: HashMap<u64, ConnectionPace>,
    /// Looks since the last change of the member's objects.
    unchanged: u32,
}

/// The pace of a connection.
#[derive(Default)]
struct ConnectionPace {
    /// The member's objects have changed since it connected. Else another worker would be as slow.
    objects_changed: bool,
    works: HashMap<OperationKind, WorkPace>,
    /// It serves in place of a connection on which this work was slow, and was not judged yet.
    replaces: Option<OperationKind>,
}

/// One kind of work on one connection.
struct WorkPace {
    /// Operations.
    count: u64,
    /// Nanoseconds in the fastest look.
    fastest: u64,
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
    /// It is not as slow as the connection that it replaces.
    Faster,
    /// It is slow, as that one was.
    NoFaster,
}

impl Default for Baselines {
    fn default() -> Self {
        Self {
            best: HashMap::new(),
            connections: HashMap::new(),
            unchanged: RECENT,
        }
    }
}

impl Baselines {
    /// These connections serve at this look; all others are forgotten.
    pub fn serve_by(&mut self, generations: &[u64]) {
        self.connections
            .retain(|generation, _| generations.contains(generation));
        for generation in generations {
            let connection = self.connections.entry(*generation);
            connection.or_insert_with(|| ConnectionPace {
                objects_changed: self.unchanged < RECENT,
                ..ConnectionPace::default()
            });
        }
        self.unchanged = self.unchanged.saturating_add(1);
    }

    /// The member has other objects than before.
    pub fn objects_have_changed(&mut self) {
        self.unchanged = 0;
        for connection in self.connections.values_mut() {
            connection.objects_changed = true;
        }
    }

    /// This connection, which is new, serves in place of a slow one.
    pub fn replaced(&mut self, generation: u64, slow: &Slow) {
        let connection = ConnectionPace {
            replaces: Some(slow.work),
            ..ConnectionPace::default()
        };
        self.connections.insert(generation, connection);
    }

    /// Adds the measurements of a connection. Answers with the slowest work that has been slow in several looks.
    pub fn judge(&mut self, generation: u64, paces: &[OperationPace]) -> Option<PaceVerdict> {
        let connection = self.connections.entry(generation).or_default();
        let mut slowest: Option<Slow> = None;
        for pace in paces.iter().take(KINDS) {
            let Some(best) = remember(&mut self.best, pace.work, || pace.nanos) else {
                continue;
            };
            let new = || WorkPace::new(pace.nanos);
            let Some(work) = remember(&mut connection.works, pace.work, new) else {
                continue;
            };
            if std::mem::replace(&mut work.count, pace.count) == pace.count {
                continue;
            }
            work.looks += 1;
            work.fastest = work.fastest.min(pace.nanos);
            *best = pace.nanos.min(*best);
            let is_judged = work.looks >= PERSISTENT && connection.replaces == Some(pace.work);
            if is_judged {
                connection.replaces = None;
                if !is_slow(work.fastest, *best) {
                    return Some(PaceVerdict::Faster);
                }
                // The objects may have changed before its first look.
                if !connection.objects_changed {
                    self.accept(generation);
                }
                return Some(PaceVerdict::NoFaster);
            }
            let is_slow = is_slow(pace.nanos, *best) && connection.objects_changed;
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

    /// The machine or the token has become slower: the pace of this connection is the best. Others that were replaced
    /// for the same reason are not judged.
    fn accept(&mut self, generation: u64) {
        let works = &self.connections[&generation].works;
        let known = works.iter().filter(|(_, work)| work.looks >= PERSISTENT);
        self.best
            .extend(known.map(|(kind, work)| (*kind, work.fastest)));
        for connection in self.connections.values_mut() {
            connection.replaces = None;
            for work in connection.works.values_mut() {
                work.slow = 0;
            }
        }
    }
}

fn is_slow(nanos: u64, best: u64) -> bool {
    nanos > best.saturating_mul(2).saturating_add(FLOOR)
}

/// What is known of a kind of work. `None` if there are too many kinds.
fn remember<T>(
    kinds: &mut HashMap<OperationKind, T>,
    kind: OperationKind,
    new: impl FnOnce() -> T,
) -> Option<&mut T> {
    if kinds.len() >= KINDS && !kinds.contains_key(&kind) {
        return None;
    }
    Some(kinds.entry(kind).or_insert_with(new))
}

impl WorkPace {
    fn new(nanos: u64) -> Self {
        Self {
            count: 0,
            fastest: nanos,
            looks: 0,
            slow: 0,
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

    /// A member with a slow connection 1, and another one. The fresh connection 3 serves in its place.
    fn replaced() -> Baselines {
        let mut baselines = Baselines::default();
        baselines.serve_by(&[1, 2]);
        baselines.judge(1, &pace(20, 32));
        baselines.objects_have_changed();
        for connection in [1, 2] {
            baselines.judge(connection, &pace(60, 64));
        }
        let slow = slow(baselines.judge(1, &pace(60, 96)));
        baselines.replaced(3, &slow);
        baselines.serve_by(&[2, 3]);
        baselines
    }

    #[test]
    fn a_successor_that_is_as_slow_sets_the_best() {
        let mut baselines = replaced();
        assert!(baselines.judge(3, &pace(58, 32)).is_none());
        let verdict = baselines.judge(3, &pace(60, 64));
        assert!(
            matches!(verdict, Some(PaceVerdict::NoFaster)),
            "{verdict:?}"
        );
        baselines.objects_have_changed();
        for count in 4..10 {
            assert!(baselines.judge(2, &pace(119, count * 32)).is_none());
            assert!(baselines.judge(3, &pace(61, count * 32)).is_none());
        }
    }

    #[test]
    fn a_successor_that_is_faster_is_said_once() {
        let mut baselines = replaced();
        assert!(baselines.judge(3, &pace(40, 32)).is_none());
        let verdict = baselines.judge(3, &pace(50, 64));
        assert!(matches!(verdict, Some(PaceVerdict::Faster)), "{verdict:?}");
        assert!(baselines.judge(3, &pace(40, 96)).is_none());
    }

    #[test]
    fn a_change_during_a_trial_does_not_set_the_best() {
        for first in [20, 60] {
            let mut baselines = replaced();
            assert!(baselines.judge(3, &pace(first, 32)).is_none());
            baselines.objects_have_changed();
            let verdict = baselines.judge(3, &pace(60, 64));
            let is_faster = matches!(verdict, Some(PaceVerdict::Faster));
            assert_eq!(is_faster, first == 20, "{verdict:?}");
            baselines.judge(3, &pace(60, 96));
            slow(baselines.judge(3, &pace(60, 128)));
        }
    }

    #[test]
    fn a_connection_that_is_new_soon_after_a_change_may_be_slow() {
        let mut baselines = Baselines::default();
        baselines.serve_by(&[1]);
        baselines.judge(1, &pace(20, 32));
        baselines.objects_have_changed();
        baselines.serve_by(&[1, 2]);
        baselines.judge(2, &pace(60, 32));
        slow(baselines.judge(2, &pace(60, 64)));
        for _ in 0..RECENT {
            baselines.serve_by(&[1, 2]);
        }
        baselines.serve_by(&[1, 2, 3]);
        for count in 1..5 {
            assert!(baselines.judge(3, &pace(60, count * 32)).is_none());
        }
    }

    #[test]
    fn kinds_of_work_are_bounded() {
        let mut baselines = Baselines::default();
        baselines.serve_by(&[1]);
        for mechanism in 0..1000 {
            let mut pace = pace(20, 32);
            pace[0].work = OperationKind::new(Verb::Sign, mechanism, 32, 64);
            pace[0].nanos = u64::MAX;
            baselines.judge(1, &pace);
        }
        assert_eq!(baselines.best.len(), KINDS);
        assert_eq!(baselines.connections[&1].works.len(), KINDS);
    }
}
