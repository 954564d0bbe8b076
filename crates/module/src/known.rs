//! The token's objects as they were read last, and what has come and gone by our own calls since.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use hsmux_token::ck::CKA_CHECK_VALUE;
use hsmux_token::sync::{Mutex, RwLock, RwLockReadGuard, Turn};
use hsmux_token::{Attribute, Attributes, Object};

use crate::library::Handle;

/// See the module's page. Without the secret parts of keys.
#[derive(Default)]
pub(crate) struct Known {
    objects: RwLock<BTreeMap<Handle, Object>>,
    epoch: AtomicU64,
    /// One reads at a time; how often everything has been read.
    pub reading: Mutex<()>,
    pub reads: AtomicU64,
    /// Whose turn it is to search, or to make objects.
    pub store: Turn<()>,
}

impl Known {
    /// All of them; nothing before the first read.
    pub fn all(&self) -> RwLockReadGuard<'_, BTreeMap<Handle, Object>> {
        self.objects.read()
    }

    /// An object has been made, found, or has new attributes.
    pub fn insert(&self, handle: Handle, object: Object) {
        let mut objects = self.objects.write();
        if objects.get(&handle) != Some(&object) {
            objects.insert(handle, object);
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// An object has been destroyed.
    pub fn remove(&self, handle: Handle) {
        if self.objects.write().remove(&handle).is_some() {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Objects that others have removed.
    pub fn remove_all(&self, lost: &[Handle]) {
        let mut objects = self.objects.write();
        let before = objects.len();
        for handle in lost {
            objects.remove(handle);
        }
        let changed = objects.len() != before;
        self.epoch.fetch_add(u64::from(changed), Ordering::AcqRel);
    }

    /// Of the handles that a search has found those that are new, and known ones that it has not found.
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

    /// Everything has been read; answers the epoch of it.
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

    /// The check value of a secret key that was computed when it was read for the first time: to
    /// compute it again would be an encryption for each key at each read.
    ///
    /// It is the same key if its handle and all its attributes are the same. Where a module gives the
    /// handle of a deleted key to another with the same attributes, the next proof finds it out.
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
