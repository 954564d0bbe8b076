//! Managed keys: their names, their types, their versions, and what their owner allows.

mod kind;
mod mark;
mod name;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use hsmux_software::PublicKey;
use hsmux_token::{Class, ObjectId};

pub(crate) use kind::{HASHES, hash_word};
pub use kind::{KeyType, KeyTypeRow, Shape};
pub use mark::{KeyMark, Role};
pub use name::KeyName;

use crate::engine::Budget;

/// A managed key with all its versions, at one moment.
#[derive(Clone, Debug)]
pub struct ManagedKey {
    /// Its name.
    pub name: KeyName,
    /// Its type, the same for all versions.
    pub kind: KeyType,
    /// The owner's settings.
    pub settings: KeySettings,
    /// From 1 up, without trimmed ones.
    pub versions: BTreeMap<u32, Arc<KeyVersion>>,
}

/// The owner's settings of a key (the dialect's `keys/:name/config`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeySettings {
    /// True if the key may be deleted.
    pub deletion_allowed: bool,
    /// Older versions no longer decrypt or verify, and make nothing new.
    pub min_decryption: u32,
    /// Older versions no longer encrypt or sign; 0: only the latest, unless a request names one.
    pub min_encryption: u32,
    /// Older versions are gone for good; 0: none were trimmed.
    pub min_available: u32,
}

/// One version of a key, with its objects on the tokens.
#[derive(Debug)]
pub struct KeyVersion {
    /// From 1.
    pub number: u32,
    /// Seconds after 1970.
    pub created: u64,
    /// The secret or private key.
    pub object: ObjectId,
    /// The second key, for encryption with an HMAC.
    pub mac: Option<ObjectId>,
    /// Its remaining uses, if they are counted.
    pub budget: Option<Arc<Budget>>,
    /// The chain of certificates in PEM, the key's own first.
    pub certificates: Option<String>,
    /// The public half, from its first use on.
    pub public: OnceLock<PublicKey>,
}

impl Default for KeySettings {
    /// The settings of a new key, and of one whose settings were lost: it cannot be deleted.
    fn default() -> Self {
        Self {
            deletion_allowed: false,
            min_decryption: 1,
            min_encryption: 0,
            min_available: 0,
        }
    }
}

impl ManagedKey {
    /// The number of the newest version.
    pub fn latest(&self) -> u32 {
        self.versions
            .last_key_value()
            .map_or(0, |(number, _)| *number)
    }

    /// The same key with this version added or replaced.
    #[must_use]
    pub fn with(&self, version: KeyVersion) -> Self {
        let mut key = self.clone();
        key.versions.insert(version.number, Arc::new(version));
        key
    }
}

impl KeyVersion {
    /// All objects of it on the tokens.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        halves(self.object).chain(self.mac)
    }
}

/// The objects of a key on the tokens: for a pair both halves.
pub(crate) fn halves(key: ObjectId) -> impl Iterator<Item = ObjectId> {
    let private = key.class == Class::PRIVATE_KEY;
    let public = private.then(|| key.with_class(Class::PUBLIC_KEY));
    [Some(key), public].into_iter().flatten()
}
