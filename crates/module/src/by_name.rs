//! Values for a token's objects, read by every operation and written when objects change.

use arc_swap::ArcSwap;
use hsmux_token::{NameMap, ObjectId};

/// One value for each object, for example its handle.
pub(crate) struct ByName<V>(ArcSwap<NameMap<ObjectId, V>>);

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self(ArcSwap::default())
    }
}

impl<V: Clone> ByName<V> {
    pub fn get(&self, id: &ObjectId) -> Option<V> {
        self.0.load().get(id).cloned()
    }

    pub fn len(&self) -> usize {
        self.0.load().len()
    }

    pub fn replace(&self, all: NameMap<ObjectId, V>) {
        self.0.store(all.into());
    }

    pub fn insert_all(&self, new: &[(ObjectId, V)]) {
        if !new.is_empty() {
            self.change(|map| map.extend(new.iter().cloned()));
        }
    }

    pub fn remove(&self, id: &ObjectId) {
        self.change(|map| map.remove(id));
    }

    /// The entry for which `of` is least.
    pub fn least<K: Ord>(&self, of: impl Fn(&V) -> K) -> Option<(ObjectId, K)> {
        let all = self.0.load();
        let least = all.iter().map(|(id, value)| (of(value), *id)).min();
        least.map(|(key, id)| (id, key))
    }

    /// Removes entries and returns them. If two threads remove the same one, only one gets it.
    pub fn take(&self, which: impl Fn(&ObjectId, &V) -> bool) -> Vec<V> {
        if !self.0.load().iter().any(|(id, value)| which(id, value)) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        self.change(|map| {
            let out = map.extract_if(|id, value| which(id, value));
            taken = out.map(|(_, value)| value).collect();
        });
        taken
    }

    fn change<R>(&self, mut change: impl FnMut(&mut NameMap<ObjectId, V>) -> R) {
        self.0.rcu(|map| {
            let mut map = NameMap::clone(map);
            change(&mut map);
            map
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_is_no_longer_there() {
        let names = [1, 2, 3].map(|byte| ObjectId::of_secret_key(0, &[byte], b""));
        let all = ByName::default();
        all.insert_all(&[(names[0], 10), (names[1], 20), (names[2], 30)]);
        let mut taken = all.take(|id, value| *id == names[0] || *value == 30);
        taken.sort_unstable();
        assert_eq!((taken, all.len()), (vec![10, 30], 1));
        assert_eq!((all.get(&names[0]), all.get(&names[1])), (None, Some(20)));
        assert!(all.take(|_, value| *value == 30).is_empty());
    }
}
