//! Session keys with which an operation takes longer than with others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use hsmux_token::{ObjectRef, Operation, Outcome, SessionObject};

use crate::catalogue::Catalogue;
use crate::clock::Mutex;
use crate::owner::times_longer_with;

/// How many times longer, for each such key.
#[derive(Default)]
pub(crate) struct LargeSessionKeys {
    /// How many there are: mostly none, and then nobody locks.
    len: AtomicUsize,
    keys: Mutex<HashMap<SessionObject, u64>>,
}

/// From so many on, those of connections that have ended make room.
const MANY: usize = 1024;

impl LargeSessionKeys {
    /// How many times longer than with others it takes with these.
    pub fn times(&self, objects: impl Iterator<Item = SessionObject>) -> u64 {
        let mut objects = objects.peekable();
        if objects.peek().is_none() || self.len.load(Ordering::Relaxed) == 0 {
            return 1;
        }
        let keys = self.keys.lock();
        let times = objects.filter_map(|object| keys.get(&object).copied());
        times.max().unwrap_or(1)
    }

    /// An operation has made or destroyed objects.
    pub fn note(&self, operation: &Operation, outcome: &Outcome, catalogue: &Catalogue) {
        if let Outcome::Objects(made) = outcome {
            for made in made {
                let times = times_longer_with(&made.object);
                if let Some(session) = made.session.filter(|_| times > 1) {
                    self.insert(session, times, catalogue);
                }
            }
        }
        if let Operation::Destroy {
            object: ObjectRef::Session(object),
        } = operation
            && self.len.load(Ordering::Relaxed) > 0
        {
            let mut keys = self.keys.lock();
            keys.remove(object);
            self.len.store(keys.len(), Ordering::Relaxed);
        }
    }

    fn insert(&self, session: SessionObject, times: u64, catalogue: &Catalogue) {
        let mut keys = self.keys.lock();
        // At every doubling, so that looking through all costs each of them little.
        if keys.len() >= MANY && keys.len().is_power_of_two() {
            keys.retain(|session, _| catalogue.locate(session.owner).is_some());
        }
        keys.insert(session, times);
        self.len.store(keys.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use hsmux_token::{Attributes, Made, Object, ObjectId, ck};

    use super::*;

    fn session(owner: u64, handle: u64) -> SessionObject {
        SessionObject { owner, handle }
    }

    fn made(session: SessionObject, bits: usize) -> Outcome {
        let attributes = Attributes::default().with(ck::CKA_MODULUS, vec![0xff; bits / 8]);
        Outcome::Objects(vec![Made {
            session: Some(session),
            object: Object {
                id: ObjectId::of_data(b"", b"key", b""),
                attributes,
            },
        }])
    }

    #[test]
    fn large_keys_are_known_until_they_are_destroyed() {
        let (keys, catalogue) = (LargeSessionKeys::default(), Catalogue::default());
        let none = Operation::Random { len: 1 };
        let times = |object| keys.times([object].into_iter());
        keys.note(&none, &made(session(1, 1), 2048), &catalogue);
        assert_eq!((times(session(1, 1)), keys.keys.lock().len()), (1, 0));
        keys.note(&none, &made(session(1, 1), 4096), &catalogue);
        assert_eq!([session(1, 1), session(2, 1)].map(times), [8, 1]);
        let destroy = Operation::Destroy {
            object: ObjectRef::Session(session(1, 1)),
        };
        keys.note(&destroy, &Outcome::Done, &catalogue);
        assert_eq!(times(session(1, 1)), 1);
    }

    #[test]
    fn those_of_connections_that_have_ended_are_forgotten() {
        let keys = LargeSessionKeys::default();
        let catalogue = Catalogue {
            generations: vec![0, 7],
            ..Catalogue::default()
        };
        let none = Operation::Random { len: 1 };
        for handle in 0..=MANY as u64 {
            let owner = if handle % 2 == 0 { 7 } else { 6 };
            keys.note(&none, &made(session(owner, handle), 4096), &catalogue);
        }
        assert_eq!(keys.keys.lock().len(), MANY / 2 + 1);
        assert_eq!(keys.times([session(7, 0)].into_iter()), 8);
    }
}
