//! Keys in a card's memory.

use std::fmt;

use num_bigint::BigUint;
use serde::{Deserialize, Serialize};

use crate::crypto::curve;
use crate::crypto::ec::EcKey;
use crate::crypto::rsa::RsaKey;

/// A private or secret key.
pub enum CardKey {
    /// RSA.
    Rsa(RsaKey),
    /// On a curve.
    Ec(EcKey),
    /// AES: 16, 24 or 32 bytes.
    Aes(Vec<u8>),
}

/// The kind of a key, with its name in timing tables: `rsa-2048`, `ec-256`, `aes-128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA with the bits of its modulus.
    Rsa(usize),
    /// A curve with the bits of its field.
    Ec(usize),
    /// AES with its bits.
    Aes(usize),
}

impl CardKey {
    /// Its kind.
    pub fn kind(&self) -> KeyKind {
        match self {
            Self::Rsa(key) => KeyKind::Rsa(key.bits()),
            Self::Ec(key) => KeyKind::Ec(key.curve.p.bits() as usize),
            Self::Aes(key) => KeyKind::Aes(key.len() * 8),
        }
    }

    /// Approximate size in the card's memory, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Rsa(key) => key.len() * 5 / 2,
            Self::Ec(key) => key.curve.len * 3,
            Self::Aes(key) => key.len(),
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "rsa-{bits}"),
            Self::Ec(bits) => write!(f, "ec-{bits}"),
            Self::Aes(bits) => write!(f, "aes-{bits}"),
        }
    }
}

/// A key in the state file: the minimum from which the rest is computed, in hexadecimal.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum StoredKey {
    Rsa { p: String, q: String, e: String },
    Ec { curve: String, d: String },
    Aes(String),
}

impl Serialize for CardKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = match self {
            Self::Rsa(key) => StoredKey::Rsa {
                p: key.p.to_str_radix(16),
                q: key.q.to_str_radix(16),
                e: key.e.to_str_radix(16),
            },
            Self::Ec(key) => StoredKey::Ec {
                curve: key.curve.name.to_owned(),
                d: key.d.to_str_radix(16),
            },
            Self::Aes(key) => StoredKey::Aes(hex::encode(key)),
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CardKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        StoredKey::deserialize(deserializer)?
            .key()
            .ok_or_else(|| serde::de::Error::custom("not a key"))
    }
}

impl StoredKey {
    fn key(&self) -> Option<CardKey> {
        let number = |digits: &str| BigUint::parse_bytes(digits.as_bytes(), 16);
        Some(match self {
            Self::Rsa { p, q, e } => {
                CardKey::Rsa(RsaKey::from_primes(number(p)?, number(q)?, number(e)?)?)
            }
            Self::Ec { curve, d } => CardKey::Ec(EcKey::new(curve::named(curve)?, number(d)?)?),
            Self::Aes(key) => {
                let key = hex::decode(key).ok()?;
                [16, 24, 32]
                    .contains(&key.len())
                    .then_some(CardKey::Aes(key))?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_state_file() {
        let curve = curve::named("brainpoolP320r1").unwrap();
        let rsa = RsaKey::generate(1024, &BigUint::from(65_537u32)).unwrap();
        for key in [
            CardKey::Ec(EcKey::generate(curve)),
            CardKey::Aes(vec![7; 24]),
            CardKey::Rsa(rsa),
        ] {
            let text = serde_json::to_string(&key).unwrap();
            let read: CardKey = serde_json::from_str(&text).unwrap();
            assert_eq!(read.kind(), key.kind());
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
        for broken in [
            r#"{"aes":"0011"}"#,
            r#"{"ec":{"curve":"P-1","d":"1"}}"#,
            r#"{"ec":{"curve":"P-256","d":"0"}}"#,
            r#"{"rsa":{"p":"3","q":"3","e":"3"}}"#,
            r#"{"rsa":{"p":"","q":"x","e":"3"}}"#,
        ] {
            assert!(serde_json::from_str::<CardKey>(broken).is_err(), "{broken}");
        }
    }
}
