//! The token's objects as read last, with the changes by this process since.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use hsmux_token::ck::CKA_CHECK_VALUE;
use hsmux_token::sync::{Mutex, RwLock, RwLockReadGuard, Turn};
use hsmux_token::{Attribute, Attributes, Object};

use crate::library::Handle;

/// The objects, without the secret parts of keys.
#[derive(Default)]
pub(crate) struct ObjectCache {
    objects: RwLock<BTreeMap<Handle, Object>>,
    epoch: AtomicU64,
    /// Serialises readings; counts complete ones.
    pub reading: Mutex<()>,
    pub reads: AtomicU64,
    /// Orders searches and creations of objects.
    pub store: Turn<()>,
}

impl ObjectCache {
    /// All objects; none before the first reading.
    pub fn all(&self) -> RwLockReadGuard<'_, BTreeMap<Handle, Object>> {
        self.objects.read()
    }

    /// Adds an object that was created or found, or has new attributes.
    pub fn insert(&self, handle: Handle, object: Object) {
        let mut objects = self.objects.write();
        if objects.get(&handle) != Some(&object) {
            objects.insert(handle, object);
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Removes a destroyed object.
    pub fn remove(&self, handle: Handle) {
        if self.objects.write().remove(&handle).is_some() {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Removes objects that other processes have deleted.
    pub fn remove_all(&self, lost: &[Handle]) {
        let mut objects = self.objects.write();
        let before = objects.len();
        for handle in lost {
            objects.remove(handle);
        }
        let changed = objects.len() != before;
        self.epoch.fetch_add(u64::from(changed), Ordering::AcqRel);
    }

    /// Compares a search with the known objects; returns new handles, and known handles that were not found.
    pub fn compare(&self, found: &[Handle]) -> (Vec<Handle>, Vec<Handle>) {
        let objects = self.objects.read();
        let new = found.iter().filter(|handle| !objects.contains_key(handle));
        let new: Vec<_> = new.copied().collect();
        if objects.len() + new.len() == found.len() {
            return (new, Vec::new());
        }
        let found: HashSet<_> = found.iter().collect();
        let lost = objects.keys().filter(|handle| !found.contains(handle));
        (new, lost.copied().collect())
    }

    /// Replaces everything after a complete reading; returns its epoch.
    pub fn replace(&self, all: BTreeMap<Handle, Object>) -> u64 {
        self.reads.fetch_add(1, Ordering::Release);
        let mut objects = self.objects.write();
        let epoch = self.epoch.load(Ordering::Acquire);
        if epoch > 0 && *objects == all {
            return epoch;
        }
        *objects = all;
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The check value from the first reading of a secret key, because a new one costs an encryption. If a module gives
    /// a deleted key's handle to another key with the same attributes, the next proof detects it.
    pub fn check_value(&self, handle: Handle, read: &Attributes) -> Option<Vec<u8>> {
        let objects = self.objects.read();
        let known = &objects.get(&handle)?.attributes;
        let same = but_check_value(known).eq(but_check_value(read));
        same.then(|| known.get(CKA_CHECK_VALUE).map(<[u8]>::to_vec))?
    }
}

fn but_check_value(attributes: &Attributes) -> impl Iterator<Item = &Attribute> {
    attributes.0.iter().filter(|a| a.kind != CKA_CHECK_VALUE)
}
