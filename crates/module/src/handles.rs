//! Where objects are: read for every operation, written when objects come and go.

use arc_swap::ArcSwap;
use hsmux_token::{NameMap, ObjectId};

use crate::library::Handle;

/// The handles of a token's objects.
#[derive(Default)]
pub(crate) struct Handles(ArcSwap<NameMap<ObjectId, Handle>>);

impl Handles {
    pub(crate) fn get(&self, id: &ObjectId) -> Option<Handle> {
        self.0.load().get(id).copied()
    }

    pub(crate) fn replace(&self, all: NameMap<ObjectId, Handle>) {
        self.0.store(all.into());
    }

    pub(crate) fn insert_all(&self, new: &[(ObjectId, Handle)]) {
        if !new.is_empty() {
            self.change(|map| map.extend(new.iter().copied()));
        }
    }

    /// Takes out all others.
    pub(crate) fn keep(&self, wanted: impl Fn(&ObjectId, &Handle) -> bool) {
        self.change(|map| map.retain(|id, handle| wanted(id, handle)));
    }

    pub(crate) fn remove(&self, id: &ObjectId) {
        self.change(|map| map.remove(id));
    }

    fn change<R>(&self, mut change: impl FnMut(&mut NameMap<ObjectId, Handle>) -> R) {
        self.0.rcu(|map| {
            let mut map = NameMap::clone(map);
            change(&mut map);
            map
        });
    }
}
