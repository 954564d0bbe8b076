//! Keys that requests wait for: they are proved before the others.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use hsmux_token::ObjectId;

use crate::clock::Mutex;

/// If there are more, the set is cleared: nearly all keys are awaited then.
const MOST: usize = 1024;

/// Keys that a request waits for, or did.
#[derive(Default)]
pub(crate) struct AwaitedKeys {
    keys: Mutex<HashSet<ObjectId>>,
    added: AtomicU64,
}

impl AwaitedKeys {
    /// A request waits for this key.
    pub fn add(&self, key: ObjectId) {
        let mut keys = self.keys.lock();
        if keys.len() >= MOST {
            keys.clear();
        }
        if keys.insert(key) {
            self.added.fetch_add(1, Ordering::Release);
        }
    }
}

/// Keys to prove, awaited ones first.
pub(super) struct ProofOrder<'a> {
    awaited: &'a AwaitedKeys,
    left: VecDeque<ObjectId>,
    /// The value of `added` at the last search, which found none.
    looked: u64,
}

impl<'a> ProofOrder<'a> {
    pub fn new(awaited: &'a AwaitedKeys, keys: Vec<ObjectId>) -> Self {
        Self {
            awaited,
            left: keys.into(),
            looked: 0,
        }
    }

    /// The first of the remaining keys that is awaited.
    fn first(&mut self) -> Option<ObjectId> {
        let added = self.awaited.added.load(Ordering::Acquire);
        if added == self.looked {
            return None;
        }
        let mut keys = self.awaited.keys.lock();
        let at = self.left.iter().position(|key| keys.contains(key));
        let Some(at) = at else {
            self.looked = added;
            return None;
        };
        let key = self.left.remove(at)?;
        keys.remove(&key);
        Some(key)
    }
}

impl Iterator for ProofOrder<'_> {
    type Item = ObjectId;

    fn next(&mut self) -> Option<ObjectId> {
        self.first().or_else(|| self.left.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> ObjectId {
        ObjectId::of_secret_key(0, &[number], b"kcv")
    }

    #[test]
    fn awaited_keys_come_first() {
        let awaited = AwaitedKeys::default();
        let mut order = ProofOrder::new(&awaited, (0..9).map(key).collect());
        assert_eq!(order.next(), Some(key(0)));
        awaited.add(key(7));
        awaited.add(key(99));
        awaited.add(key(4));
        let next: Vec<_> = order.collect();
        assert_eq!(next, [4, 7, 1, 2, 3, 5, 6, 8].map(key));
    }
}
