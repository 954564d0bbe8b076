//! Keys that pretend to be ML-DSA-65, with values of the lengths of FIPS 204, table 2. Only the holder of the key
//! can check signatures, like a pool with a key type that it cannot compute.

use sha2::{Digest, Sha256};

/// A key.
pub struct MlDsa(u64);

impl MlDsa {
    /// Bytes of a signature.
    pub const SIGNATURE: usize = 3309;
    /// Bytes of a public key.
    const PUBLIC: usize = 1952;

    pub(super) fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// The public key.
    pub fn public(&self) -> Vec<u8> {
        self.stretched(b"public", &[], Self::PUBLIC)
    }

    /// A signature.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.stretched(b"signature", message, Self::SIGNATURE)
    }

    fn stretched(&self, domain: &[u8], text: &[u8], len: usize) -> Vec<u8> {
        let block = |number: u64| {
            let hash = Sha256::new()
                .chain_update("hsmux-standin ML-DSA")
                .chain_update(self.0.to_be_bytes())
                .chain_update(number.to_be_bytes())
                .chain_update(domain)
                .chain_update(text);
            hash.finalize()
        };
        (0..).flat_map(block).take(len).collect()
    }
}
