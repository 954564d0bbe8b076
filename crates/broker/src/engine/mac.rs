//! HMACs, made by the token; compared here.

use bytes::Bytes;
use hsmux_token::{Mechanism, ObjectId, Verb};

use super::Engine;
use crate::key::HASHES;
use crate::refusal::Refusal;

/// The mechanism of an HMAC, by the dialect's word for its hash.
#[derive(Clone, Copy, Debug)]
pub struct HmacMechanism(u64);

impl HmacMechanism {
    /// `sha2-256`.
    pub fn of(word: &str) -> Result<Self, Refusal> {
        let found = HASHES.iter().find(|(name, ..)| *name == word);
        found
            .map(|(_, _, mechanism)| Self(*mechanism))
            .ok_or_else(|| {
                let words: Vec<_> = HASHES.iter().map(|(word, ..)| *word).collect();
                Refusal::bad(format!(
                    "unsupported algorithm {word:?}; there are {}",
                    words.join(", ")
                ))
            })
    }
}

impl Engine {
    /// The HMAC of some data.
    pub async fn hmac(
        &self,
        key: ObjectId,
        mac: HmacMechanism,
        data: Vec<u8>,
    ) -> Result<Bytes, Refusal> {
        let mechanism = Mechanism::plain(mac.0);
        Ok(self.with_key(Verb::Sign, key, mechanism, data).await?)
    }
}
