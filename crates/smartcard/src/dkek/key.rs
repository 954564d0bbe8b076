//! The key itself, and what is derived from it.

use std::fmt;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::random;

/// One of the secrets that make a DKEK together.
#[derive(Clone)]
pub struct DkekShare(Zeroizing<[u8; 32]>);

impl DkekShare {
    /// A new one, from the operating system.
    pub fn random() -> Self {
        Self(random())
    }

    /// The bytes, for IMPORT DKEK SHARE.
    pub fn expose(&self) -> &Zeroizing<[u8; 32]> {
        &self.0
    }
}

impl From<[u8; 32]> for DkekShare {
    fn from(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

/// The key under which a card wraps its keys: the XOR of all shares.
#[derive(Clone)]
pub struct Dkek(Zeroizing<[u8; 32]>);

impl Dkek {
    /// The key that a card has once all shares are imported; their order does not matter.
    pub fn from_shares<'a>(shares: impl IntoIterator<Item = &'a DkekShare>) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        for share in shares {
            for (byte, part) in key.iter_mut().zip(share.expose().iter()) {
                *byte ^= part;
            }
        }
        Self(key)
    }

    /// Its key check value on a card: the first 8 bytes of its SHA-256.
    pub fn check_value(&self) -> CheckValue {
        let digest = Sha256::digest(*self.0);
        let mut value = [0; 8];
        value.copy_from_slice(&digest[..8]);
        CheckValue(value)
    }

    /// The AES-256 key that enciphers wrapped keys.
    pub(super) fn encryption_key(&self) -> Zeroizing<[u8; 32]> {
        self.derive(1)
    }

    /// The AES-256 key of their CMAC.
    pub(super) fn mac_key(&self) -> Zeroizing<[u8; 32]> {
        self.derive(2)
    }

    fn derive(&self, purpose: u32) -> Zeroizing<[u8; 32]> {
        let digest = Sha256::new()
            .chain_update(*self.0)
            .chain_update(purpose.to_be_bytes());
        Zeroizing::new(digest.finalize().into())
    }
}

impl fmt::Debug for DkekShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DkekShare(secret)")
    }
}

impl fmt::Debug for Dkek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dkek({})", self.check_value())
    }
}

/// The key check value of a DKEK: two cards with the same can exchange keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CheckValue(pub [u8; 8]);

impl fmt::Display for CheckValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

impl fmt::Debug for CheckValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
