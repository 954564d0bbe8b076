//! Requests as operations of the pool.
//!
//! | file | one idea |
//! |---|---|
//! | `call` | an operation as a future: waiting holds no thread |
//! | `bulky` | operations with long data at once |
//! | `budget` | uses of GCM keys, counted over all replicas |
//! | `keyring` | the managed keys |
//! | `manage` | making, rotating, trimming and deleting keys |
//! | `adopt` | reconciliation of the store with the tokens |
//! | `external`, `external_name` | keys of other programs, and their names in requests |
//! | `aead`, `rsa` | encryption and decryption |
//! | `sign`, `mac` | signatures and HMACs |

mod adopt;
mod aead;
mod budget;
mod bulky;
mod call;
mod external;
mod external_name;
mod keyring;
mod mac;
mod manage;
mod rsa;
mod sign;

use std::sync::Arc;
use std::time::Duration;

use hsmux_audit::{Actor, Recorder};
use hsmux_pool::Pool;
use hsmux_token::{Class, Error, Kind, ObjectId, Request, Result};

pub use aead::{Cipher, CipherKey};
pub use budget::Budget;
pub(crate) use call::for_client;
pub use external::ExternalKey;
pub use external_name::{is_external, key_lookup, spelling};
pub use keyring::Keyring;
pub use mac::HmacMechanism;
pub use rsa::RsaPadding;
pub use sign::{RsaScheme, SigningOptions, verify};

use crate::key::{KeyVersion, ManagedKey};
use crate::refusal::Refusal;
use crate::store::Store;

/// The pool, the managed keys and the store.
pub struct Engine {
    pool: Arc<Pool>,
    submit: Submit,
    bulky: bulky::BulkyTurns,
    store: Arc<Store>,
    keyring: Keyring,
    external: external::ExternalKeys,
    /// The one writer: held during a change of keys.
    writer: tokio::sync::Mutex<()>,
    /// The substitutes for bad PKCS#1 v1.5 padding.
    rejection: rsa::ImplicitRejection,
    audit: Arc<dyn Recorder>,
    /// The actor of events that no client has caused.
    own: Arc<Actor>,
}

/// Submits an operation that changes no token. Dropping the result while the operation waits withdraws it.
pub type Submit = Box<dyn Fn(Request) -> Box<dyn Send> + Send + Sync>;

/// The time limit of a change: an RSA key takes minutes on a card.
const CHANGE: Duration = Duration::from_secs(600);

impl Engine {
    /// Reads the keys of the store, and those of the tokens that the store lacks. `pool` has the objects, and changes
    /// them. Blocks.
    pub fn start(
        pool: Arc<Pool>,
        submit: Submit,
        store: Arc<Store>,
        audit: Arc<dyn Recorder>,
    ) -> Result<Arc<Self>> {
        let (user, pid) = (rustix::process::getuid(), rustix::process::getpid());
        let own = Actor::process(user.as_raw(), pid.as_raw_nonzero().get(), "hsmux broker");
        let engine = Arc::new(Self {
            keyring: Keyring::load(&store)?,
            external: external::ExternalKeys::default(),
            writer: tokio::sync::Mutex::new(()),
            rejection: rsa::ImplicitRejection::new()?,
            own: Arc::new(own),
            audit,
            pool,
            submit,
            bulky: bulky::BulkyTurns::default(),
            store,
        });
        engine.adopt_blocking();
        Ok(engine)
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The audit trail.
    pub fn audit(&self) -> &Arc<dyn Recorder> {
        &self.audit
    }

    /// The managed keys.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// A managed key with at least one version.
    pub fn key(&self, name: &str) -> Option<Arc<ManagedKey>> {
        let key = self.keyring.get(name)?;
        self.is_left(&key).then_some(key)
    }

    /// The names of managed keys with at least one version, in order, at most so many after this one.
    pub fn names(&self, after: &str, limit: usize, of: impl Fn(&str) -> bool) -> Vec<String> {
        let wanted = |key: &ManagedKey| of(key.name.as_str()) && self.is_left(key);
        self.keyring.names(after, limit, wanted)
    }

    /// True if the tokens have the version, or may have it: no other program has removed it.
    pub fn has(&self, version: &KeyVersion) -> bool {
        let catalogue = self.pool.catalogue();
        let parts = [Some(version.object), version.mac];
        !parts.iter().flatten().any(|part| catalogue.lacks(part))
    }

    fn is_left(&self, key: &ManagedKey) -> bool {
        key.versions.values().any(|version| self.has(version))
    }

    /// The public half of a version's private key, while that exists: if another program has removed the key, nothing
    /// verifies.
    pub fn public_half(&self, version: &KeyVersion) -> Result<hsmux_software::PublicKey, Refusal> {
        if !self.has(version) {
            return Err(Refusal::no_key());
        }
        if let Some(public) = version.public.get() {
            return Ok(public.clone());
        }
        let public = self.public_key(version.object)?;
        Ok(version.public.get_or_init(|| public).clone())
    }

    /// The public half of a private key of the catalogue.
    pub(crate) fn public_key(&self, private: ObjectId) -> Result<hsmux_software::PublicKey> {
        let catalogue = self.pool.catalogue();
        let halves = [private, private.with_class(Class::PUBLIC_KEY)];
        let entries = halves.iter().filter_map(|id| catalogue.get(id));
        let keys = entries
            .map(|entry| hsmux_software::PublicKey::from_attributes(&entry.object.attributes));
        let unknown = || Error::request(Kind::UnknownObject, "the key is on no token");
        keys.reduce(Result::or).unwrap_or_else(|| Err(unknown()))
    }
}
