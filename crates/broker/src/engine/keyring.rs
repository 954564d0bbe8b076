//! The managed keys, for requests.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use hsmux_token::Result;
use parking_lot::RwLock;

use super::Budget;
use crate::key::{KeyName, KeyType, KeyVersion, ManagedKey};
use crate::refusal::Refusal;
use crate::store::{Store, VersionRow};

/// All managed keys by name. A key is replaced as a whole: requests keep the state that they started with.
#[derive(Default)]
pub struct Keyring(RwLock<BTreeMap<String, Arc<ManagedKey>>>);

impl Keyring {
    /// All keys of the store.
    pub fn load(store: &Store) -> Result<Self> {
        let ring = Self::default();
        for row in store.keys()? {
            let versions = row.versions.iter();
            let versions = versions
                .map(|version| Ok((version.number, Arc::new(load(store, row.kind, version)?))))
                .collect::<Result<_>>()?;
            ring.put(ManagedKey {
                name: row.name,
                kind: row.kind,
                settings: row.settings,
                versions,
            });
        }
        Ok(ring)
    }

    /// A key by its name.
    pub fn get(&self, name: &str) -> Option<Arc<ManagedKey>> {
        self.0.read().get(name).cloned()
    }

    /// The key, or the answer 404.
    pub fn find(&self, name: &str) -> Result<Arc<ManagedKey>, Refusal> {
        self.get(name).ok_or_else(Refusal::no_key)
    }

    /// The names of these keys in order, at most so many after this one.
    pub fn names(
        &self,
        after: &str,
        limit: usize,
        of: impl Fn(&ManagedKey) -> bool,
    ) -> Vec<String> {
        let keys = self.0.read();
        let from = (Bound::Excluded(after.to_owned()), Bound::Unbounded);
        keys.range(from)
            .filter(|(_, key)| of(key))
            .take(limit)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Replaces a key.
    pub fn put(&self, key: ManagedKey) {
        let name = key.name.as_str().to_owned();
        self.0.write().insert(name, Arc::new(key));
    }

    /// A key that is gone.
    pub fn remove(&self, name: &KeyName) {
        self.0.write().remove(name.as_str());
    }
}

/// A version as requests use it.
pub fn load(store: &Store, kind: KeyType, row: &VersionRow) -> Result<KeyVersion> {
    let counted = kind.shape().has_budget();
    Ok(KeyVersion {
        number: row.number,
        created: row.created,
        object: row.object,
        mac: row.mac,
        budget: counted
            .then(|| Budget::load(store, row.object).map(Arc::new))
            .transpose()?,
        certificates: row.certificates.clone(),
        public: OnceLock::new(),
    })
}

impl ManagedKey {
    /// The version for new output: the latest, or the requested one.
    pub fn to_make(&self, asked: Option<u32>) -> Result<&Arc<KeyVersion>, Refusal> {
        let number = match asked {
            None | Some(0) => self.latest(),
            Some(asked) if asked > self.latest() => {
                return Err(Refusal::bad(
                    "requested version for encryption is higher than the latest key version",
                ));
            }
            Some(asked) if asked < self.settings.min_encryption => {
                return Err(Refusal::bad(
                    "requested version for encryption is less than the minimum encryption key version",
                ));
            }
            // The dialect's keys no longer have that version.
            Some(asked) if asked < self.settings.min_decryption => {
                return Err(Refusal::bad(
                    "requested version is less than the minimum decryption key version",
                ));
            }
            Some(asked) => asked,
        };
        self.versions.get(&number).ok_or_else(Refusal::no_key)
    }

    /// The version that made the input.
    pub fn to_read(&self, number: u32) -> Result<&Arc<KeyVersion>, Refusal> {
        if number > self.latest() {
            return Err(Refusal::bad("invalid ciphertext: version is too new"));
        }
        if number < self.settings.min_decryption {
            return Err(Refusal::bad(
                "ciphertext or signature version is disallowed by policy (too old)",
            ));
        }
        self.versions.get(&number).ok_or_else(Refusal::no_key)
    }
}
