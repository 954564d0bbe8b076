//! RSA: encryption with the public half, decryption with the private one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use hsmux_token::{Blob, Error, Hash, Mechanism, Oaep, ObjectId, Params, Result, Scope, Verb, ck};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::Engine;
use super::aead::{judged, unreadable};
use crate::key::{HASHES, hash_word};
use crate::random::random;
use crate::refusal::Refusal;

/// How a text is padded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RsaPadding {
    /// OAEP (RFC 8017, section 7.1), MGF1 with the same hash.
    Oaep(Hash),
    /// PKCS#1 v1.5.
    Pkcs1,
}

/// Implicit rejection of bad PKCS#1 v1.5 padding. The answer is a text that looks like any other, always the same for
/// the same ciphertext (draft-irtf-cfrg-rsa-guidance, section 7).
pub struct ImplicitRejection {
    /// By key: the secrets that the substitutes are made from.
    secrets: Mutex<HashMap<ObjectId, RejectionSecret>>,
    /// For keys that do not sign.
    own: RejectionSecret,
    /// Keys and paddings that have deciphered a text.
    readable: Mutex<HashSet<(ObjectId, RsaPadding)>>,
    /// By key: the hashes of its tokens for OAEP, in the dialect's words, filled when a request uses another one.
    hashes: Mutex<HashMap<ObjectId, Vec<&'static str>>>,
}

type RejectionSecret = Zeroizing<[u8; 32]>;

/// The text that a key signs to derive its secret. The signature is the same after a restart and on every host, and
/// only the key can make it.
pub(super) const SIGNED: &[u8] = b"hsmux: texts in place of bad PKCS#1 v1.5 padding";

/// The step of answer times for PKCS#1 v1.5: a token may take longer for bad padding. The pool does the same.
const ANSWER_STEP: Duration = Duration::from_millis(100);

impl ImplicitRejection {
    pub fn new() -> Result<Self> {
        Ok(Self {
            secrets: Mutex::default(),
            own: Zeroizing::new(random()?),
            readable: Mutex::default(),
            hashes: Mutex::default(),
        })
    }

    /// Forgets keys that have gone.
    pub fn forget_but(&self, is_there: impl Fn(&ObjectId) -> bool) {
        self.secrets.lock().retain(|key, _| is_there(key));
        self.readable.lock().retain(|(key, _)| is_there(key));
        self.hashes.lock().retain(|key, _| is_there(key));
    }
}

/// The substitute for a text of at most `room` bytes.
fn made_up(secret: &RejectionSecret, sealed: &[u8], room: usize) -> Vec<u8> {
    let block = |number: u32| {
        let mut hash = Sha256::new();
        hash.update(**secret);
        hash.update(number.to_be_bytes());
        hash.update(sealed);
        hash.finalize()
    };
    let first = block(0);
    let len = usize::from(u16::from_be_bytes([first[0], first[1]])) % (room + 1);
    (1..).flat_map(block).take(len).collect()
}

impl Engine {
    pub(super) async fn rsa_encrypt(
        &self,
        key: ObjectId,
        padding: RsaPadding,
        plaintext: &[u8],
    ) -> Result<Vec<u8>, Refusal> {
        let public = self.public_key(key)?;
        let mechanism = padding.mechanism();
        let sealed = public.encrypt(&mechanism, plaintext)?;
        let known = (key, padding);
        if !self.rejection.readable.lock().contains(&known) {
            // Texts that the tokens could not read are never handed out: SoftHSM has OAEP with SHA-1 only.
            let opened = self.with_key(Verb::Decrypt, key, mechanism, sealed.clone());
            if let Err(error) = opened.await {
                return Err(self.unpadded(known, &error).await);
            }
            self.rejection.readable.lock().insert(known);
        }
        Ok(sealed)
    }

    pub(super) async fn rsa_decrypt(
        &self,
        key: ObjectId,
        padding: RsaPadding,
        sealed: Vec<u8>,
    ) -> Result<Bytes, Refusal> {
        let sealed = Bytes::from(sealed);
        let instead = match padding {
            RsaPadding::Oaep(_) => Vec::new(),
            RsaPadding::Pkcs1 => {
                let room = self.public_key(key)?.signature_len().saturating_sub(11);
                made_up(&self.rejection_secret(key).await?, &sealed, room)
            }
        };
        let begun = Instant::now();
        let opened = self
            .with_key(Verb::Decrypt, key, padding.mechanism(), sealed.clone())
            .await;
        if padding != RsaPadding::Pkcs1 {
            return match opened {
                Err(error) => Err(self.unpadded((key, padding), &error).await),
                Ok(opened) => Ok(opened),
            };
        }
        let answer = match opened.map_err(|error| judged(&error)) {
            Err(refusal) if refusal == unreadable() => Ok(instead.into()),
            other => other,
        };
        let steps = begun.elapsed().as_millis() / ANSWER_STEP.as_millis() + 1;
        tokio::time::sleep_until(begun + ANSWER_STEP * u32::try_from(steps).unwrap_or(u32::MAX))
            .await;
        answer
    }

    /// The reason why a text was not deciphered. Tokens refuse an unsupported hash in the parameter as a bad
    /// argument; some of them refuse a bad text in the same way.
    async fn unpadded(&self, (key, padding): (ObjectId, RsaPadding), error: &Error) -> Refusal {
        let RsaPadding::Oaep(hash) = padding else {
            return judged(error);
        };
        let can_read = || self.rejection.readable.lock().contains(&(key, padding));
        if !refuses_parameter(error) || can_read() {
            return judged(error);
        }
        match self.oaep_hashes(key).await {
            Ok(there) if there.contains(&hash_word(hash)) => judged(error),
            Ok(there) => Refusal::bad(format!(
                "{error}: the tokens do not have CKM_RSA_PKCS_OAEP with {}; there is {}",
                hash_word(hash),
                named("oaep_hash", &there)
            )),
            Err(refusal) => refusal,
        }
    }

    /// The hashes with which the tokens decipher a test text: the list of mechanisms does not say them.
    async fn oaep_hashes(&self, key: ObjectId) -> Result<Vec<&'static str>, Refusal> {
        if let Some(known) = self.rejection.hashes.lock().get(&key) {
            return Ok(known.clone());
        }
        let public = self.public_key(key)?;
        let mut there = Vec::new();
        for (word, hash, _) in &HASHES {
            let mechanism = RsaPadding::Oaep(*hash).mechanism();
            // A short key has no room for a long hash.
            let Ok(sealed) = public.encrypt(&mechanism, b"hsmux") else {
                continue;
            };
            match self.with_key(Verb::Decrypt, key, mechanism, sealed).await {
                Ok(_) => there.push(*word),
                Err(error) if refuses_parameter(&error) || judged(&error) == unreadable() => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.rejection.hashes.lock().insert(key, there.clone());
        Ok(there)
    }

    async fn rejection_secret(&self, key: ObjectId) -> Result<RejectionSecret> {
        if let Some(known) = self.rejection.secrets.lock().get(&key) {
            return Ok(known.clone());
        }
        let mechanism = Mechanism::plain(ck::CKM_RSA_PKCS);
        let signed = self.with_key(Verb::Sign, key, mechanism, SIGNED.to_vec());
        let secret = match signed.await {
            Ok(signature) => Zeroizing::new(Sha256::digest(&signature).into()),
            Err(error) if error.scope() == Scope::Request => self.rejection.own.clone(),
            Err(error) => return Err(error),
        };
        let mut secrets = self.rejection.secrets.lock();
        Ok(secrets.entry(key).or_insert(secret).clone())
    }
}

impl RsaPadding {
    fn mechanism(self) -> Mechanism {
        match self {
            Self::Pkcs1 => Mechanism::plain(ck::CKM_RSA_PKCS),
            Self::Oaep(hash) => Mechanism {
                kind: ck::CKM_RSA_PKCS_OAEP,
                params: Params::Oaep(Oaep {
                    hash: hash.mechanism(),
                    mgf: hash.mgf(),
                    label: Blob::default(),
                }),
            },
        }
    }
}

/// Errors of tokens for a parameter with an unsupported hash.
pub(super) fn refuses_parameter(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(ck::CKR_ARGUMENTS_BAD | ck::CKR_MECHANISM_PARAM_INVALID | ck::CKR_MECHANISM_INVALID)
    )
}

fn named(field: &str, words: &[&str]) -> String {
    if words.is_empty() {
        return "nothing of the kind".into();
    }
    format!("{field} {}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsmux_token::Class;

    #[test]
    fn nothing_is_kept_of_a_key_that_is_gone() {
        let [stays, gone] = [1, 2].map(|byte| ObjectId {
            class: Class::PRIVATE_KEY,
            name: [byte; 32],
        });
        let rejection = ImplicitRejection::new().unwrap();
        for key in [stays, gone] {
            rejection
                .secrets
                .lock()
                .insert(key, RejectionSecret::default());
            rejection.readable.lock().insert((key, RsaPadding::Pkcs1));
            rejection.hashes.lock().insert(key, vec!["sha1"]);
        }
        rejection.forget_but(|key| *key == stays);
        assert!(rejection.secrets.lock().keys().eq([&stays]));
        assert!(rejection.hashes.lock().keys().eq([&stays]));
        assert!(
            rejection
                .readable
                .lock()
                .iter()
                .eq([&(stays, RsaPadding::Pkcs1)])
        );
    }
}
