//! The keys of a trail: the signing key, its public half, and the secret for a safe.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use hsmux_token::{Error, Kind, Result};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::chain::Epoch;

/// The context of a trail's signatures: a signature over other things never counts.
const CONTEXT: &[u8] = b"hsmux audit checkpoint 1\n";

/// An Ed25519 key in SubjectPublicKeyInfo is these bytes and the key (RFC 8410, section 4).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// Signs checkpoints.
pub struct CheckpointSigner(SigningKey);

impl CheckpointSigner {
    /// From its 32 secret bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(secret))
    }

    /// Ed25519 (RFC 8032) over the context and the bytes.
    pub fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(&[CONTEXT, bytes].concat()).to_bytes()
    }

    /// Its public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }
}

/// The key that verifies checkpoints. In text: PEM, as `openssl pkey -pubin` reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// True if this key has signed the bytes.
    pub(crate) fn verifies(&self, bytes: &[u8], sig: &[u8; 64]) -> bool {
        let message = [CONTEXT, bytes].concat();
        let signature = Signature::from_bytes(sig);
        self.0.verify_strict(&message, &signature).is_ok()
    }

    /// A short name of it: 16 hexadecimal digits of the SHA-256 of its SubjectPublicKeyInfo.
    pub fn name(&self) -> String {
        hex::encode(&Sha256::digest(self.der())[..8])
    }

    fn der(&self) -> Vec<u8> {
        [SPKI.as_slice(), self.0.as_bytes()].concat()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = STANDARD.encode(self.der());
        writeln!(
            f,
            "-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----"
        )
    }
}

impl FromStr for PublicKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim);
        let body: String = lines.filter(|line| !line.starts_with('-')).collect();
        let der = STANDARD.decode(body).ok();
        let key = der.as_deref().and_then(|der| der.strip_prefix(&SPKI));
        key.and_then(|key| key.try_into().ok())
            .and_then(|key| VerifyingKey::from_bytes(key).ok())
            .map(Self)
            .ok_or_else(|| {
                let what = "not an Ed25519 public key in PEM, as hsmux audit key prints it";
                Error::request(Kind::Invalid, what)
            })
    }
}

/// The secret of one epoch, for a safe: it verifies the seals from that epoch on, and could make them. In text:
/// `hsmux-audit-seal:1:EPOCH:64 hexadecimal digits`.
#[derive(Clone)]
pub struct SealKey(pub(crate) Epoch);

impl SealKey {
    /// The first epoch that it checks.
    pub fn epoch(&self) -> u64 {
        self.0.number
    }

    /// The text, which is a secret.
    pub fn reveal(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(hex::encode(&self.0.secret[..]));
        Zeroizing::new(format!(
            "hsmux-audit-seal:1:{}:{}",
            self.0.number,
            secret.as_str()
        ))
    }
}

impl FromStr for SealKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = || {
            let rest = text.trim().strip_prefix("hsmux-audit-seal:1:")?;
            let (number, digits) = rest.split_once(':')?;
            let mut secret = Zeroizing::new([0; 32]);
            hex::decode_to_slice(digits, &mut secret[..]).ok()?;
            let number = number.parse().ok()?;
            Some(Self(Epoch { number, secret }))
        };
        let what = "not a seal key, as hsmux audit key --seal prints it";
        read().ok_or_else(|| Error::request(Kind::Invalid, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_text_and_come_back() {
        let signer = CheckpointSigner::new(&[7; 32]);
        let public = signer.public();
        assert_eq!(public.to_string().parse::<PublicKey>().unwrap(), public);
        let sig = signer.sign(b"line");
        assert!(public.verifies(b"line", &sig));
        assert!(!public.verifies(b"lime", &sig));
        assert!("-----BEGIN".parse::<PublicKey>().is_err());

        let epoch = Epoch::first().unwrap().next();
        let seal: SealKey = SealKey(epoch.clone()).reveal().parse().unwrap();
        assert_eq!(seal.epoch(), 1);
        assert_eq!(seal.0.seal(b"line"), epoch.seal(b"line"));
        assert!("hsmux-audit-seal:1:x:00".parse::<SealKey>().is_err());
    }
}
