//! The keys, and operations with them.

mod aes;
mod ec;
mod ml_dsa;
mod primes;
mod rsa;

pub use self::aes::Aes;
pub use self::ec::Ec;
pub use self::ml_dsa::MlDsa;
pub use self::rsa::Rsa;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::objects::{self, Thing};

/// The keys of one seed.
pub struct TokenKeys {
    /// P-256, different for each seed.
    pub ec: Ec,
    /// RSA-2048, one of two.
    pub rsa: Rsa,
    /// AES-256, different for each seed.
    pub aes: Aes,
    /// A pretended ML-DSA-65 key, different for each seed.
    pub ml_dsa: MlDsa,
    /// Their objects.
    pub things: Vec<Thing>,
}

impl TokenKeys {
    /// The keys of a seed, created once in a process.
    pub fn of(seed: u64) -> Arc<Self> {
        static MADE: Mutex<Option<BTreeMap<u64, Arc<TokenKeys>>>> = Mutex::new(None);
        let mut made = MADE.lock();
        let keys = made.get_or_insert_default().entry(seed).or_insert_with(|| {
            let (rsa, ec, aes) = (Rsa::of(seed), Ec::of(seed), Aes::of(seed));
            let ml_dsa = MlDsa::of(seed);
            let things = objects::all(&rsa, &ec, &aes, &ml_dsa);
            Arc::new(Self {
                ec,
                rsa,
                aes,
                ml_dsa,
                things,
            })
        });
        Arc::clone(keys)
    }
}
