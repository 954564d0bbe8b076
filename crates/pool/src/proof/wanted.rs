//! Keys that requests wait for: they are proved before the others.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use hsmux_token::ObjectId;
use hsmux_token::sync::Mutex;

/// Past this it is forgotten who was wanted: nearly everything is.
const MOST: usize = 1024;

/// Keys that somebody waits for, or did.
#[derive(Default)]
pub(crate) struct Wanted {
    keys: Mutex<HashSet<ObjectId>>,
    added: AtomicU64,
}

impl Wanted {
    /// Somebody waits for this key.
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

/// Keys that are to be proved, one after the other.
pub(super) struct Order<'a> {
    wanted: &'a Wanted,
    left: VecDeque<ObjectId>,
    /// How many had been added to those wanted when they were last looked for.
    looked: u64,
}

impl<'a> Order<'a> {
    pub fn new(wanted: &'a Wanted, keys: Vec<ObjectId>) -> Self {
        Self {
            wanted,
            left: keys.into(),
            looked: 0,
        }
    }

    /// One that is wanted, if there is any among those that are left.
    fn first(&mut self) -> Option<ObjectId> {
        let added = self.wanted.added.load(Ordering::Acquire);
        if added == self.looked {
            return None;
        }
        let mut keys = self.wanted.keys.lock();
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

impl Iterator for Order<'_> {
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
    fn who_is_waited_for_comes_first() {
        let wanted = Wanted::default();
        let mut order = Order::new(&wanted, (0..9).map(key).collect());
        assert_eq!(order.next(), Some(key(0)));
        wanted.add(key(7));
        wanted.add(key(99));
        wanted.add(key(4));
        let next: Vec<_> = order.collect();
        assert_eq!(next, [4, 7, 1, 2, 3, 5, 6, 8].map(key));
    }
}
