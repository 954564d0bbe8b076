//! Types of keys: one table from the dialect's word to the tokens' keys.

use std::fmt;
use std::str::FromStr;

use hsmux_software::{CURVES, KeySpec};
use hsmux_token::{Hash, ck};
use serde::{Serialize, Serializer};

/// A type of key, as the dialect names it; `aes256-cbc` is an extension.
#[derive(Clone, Copy)]
pub struct KeyType(&'static KeyTypeRow);

/// The row of a type.
pub struct KeyTypeRow {
    /// The dialect's word.
    pub word: &'static str,
    /// Its number in the CKA_ID of managed keys, which never changes.
    pub code: u8,
    /// The keys and operations behind the type.
    pub shape: Shape,
}

/// The keys and operations behind a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// AES in GCM with random nonces of 96 bits.
    AesGcm {
        /// Bits of the key.
        bits: u64,
    },
    /// AES-256 in CBC, and HMAC-SHA-256 with a second key over it.
    AesCbcHmac,
    /// ECDSA on the curve of that name; an external key's curve may have no word in the dialect.
    Ecdsa(&'static str),
    /// Ed25519, without prehash.
    Ed25519,
    /// RSA: OAEP, PSS and PKCS#1 v1.5.
    Rsa {
        /// Bits of the modulus.
        bits: u64,
    },
    /// HMAC with a key as long as the longest hash.
    Hmac,
}

const fn row(word: &'static str, code: u8, shape: Shape) -> KeyTypeRow {
    KeyTypeRow { word, code, shape }
}

static TABLE: [KeyTypeRow; 11] = [
    row("aes128-gcm96", 1, Shape::AesGcm { bits: 128 }),
    row("aes256-gcm96", 2, Shape::AesGcm { bits: 256 }),
    row("aes256-cbc", 3, Shape::AesCbcHmac),
    row("ecdsa-p256", 4, Shape::Ecdsa("p256")),
    row("ecdsa-p384", 5, Shape::Ecdsa("p384")),
    row("ecdsa-p521", 6, Shape::Ecdsa("p521")),
    row("ed25519", 7, Shape::Ed25519),
    row("rsa-2048", 8, Shape::Rsa { bits: 2048 }),
    row("rsa-3072", 9, Shape::Rsa { bits: 3072 }),
    row("rsa-4096", 10, Shape::Rsa { bits: 4096 }),
    row("hmac", 11, Shape::Hmac),
];

/// The HMAC key's length: that of SHA-512; some tokens refuse shorter keys for it (SoftHSM).
const HMAC_BITS: u64 = 512;

impl KeyType {
    /// The dialect's default.
    pub const DEFAULT: &'static str = "aes256-gcm96";

    /// All types, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(Self)
    }

    /// The type of a number in a CKA_ID.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::all().find(|kind| kind.0.code == code)
    }

    /// The dialect's word.
    pub fn word(self) -> &'static str {
        self.0.word
    }

    /// Its number in a CKA_ID.
    pub fn code(self) -> u8 {
        self.0.code
    }

    /// The length in bytes, for keys whose length the dialect leaves open.
    pub fn key_size(self) -> Option<u32> {
        (self.shape() == Shape::Hmac).then_some(HMAC_BITS as u32 / 8)
    }

    /// The keys and operations behind the type.
    pub fn shape(self) -> Shape {
        self.0.shape
    }
}

impl Shape {
    /// The keys that the tokens make for it: the main key, and a second one if the type has one.
    pub fn specs(self) -> (KeySpec, Option<KeySpec>) {
        let curve = |name: &str| {
            let found = CURVES.iter().find(|curve| curve.name() == name);
            KeySpec::Curve(found.unwrap_or(&CURVES[0]))
        };
        match self {
            Self::AesGcm { bits } => (KeySpec::Aes(bits), None),
            Self::AesCbcHmac => (KeySpec::Aes(256), Some(KeySpec::Generic(HMAC_BITS))),
            Self::Ecdsa(name) => (curve(name), None),
            Self::Ed25519 => (curve("ed25519"), None),
            Self::Rsa { bits } => (KeySpec::Rsa(bits), None),
            Self::Hmac => (KeySpec::Generic(HMAC_BITS), None),
        }
    }

    /// The dialect's word, or a similar one for an external key.
    pub fn word(self) -> String {
        match self {
            Self::AesGcm { bits } => format!("aes{bits}-gcm96"),
            Self::AesCbcHmac => "aes256-cbc".into(),
            Self::Ecdsa(name) => format!("ecdsa-{name}"),
            Self::Ed25519 => "ed25519".into(),
            Self::Rsa { bits } => format!("rsa-{bits}"),
            Self::Hmac => "hmac".into(),
        }
    }

    /// True if it enciphers and deciphers.
    pub fn encrypts(self) -> bool {
        matches!(
            self,
            Self::AesGcm { .. } | Self::AesCbcHmac | Self::Rsa { .. }
        )
    }

    /// True if it signs and verifies.
    pub fn signs(self) -> bool {
        matches!(self, Self::Ecdsa(_) | Self::Ed25519 | Self::Rsa { .. })
    }

    /// True if its uses are counted: random nonces of 96 bits repeat after so many (SP 800-38D, 8.3).
    pub fn has_budget(self) -> bool {
        matches!(self, Self::AesGcm { .. })
    }

    /// The dialect's word for the curve of an elliptic key.
    pub fn curve_word(self) -> Option<&'static str> {
        match self {
            Self::Ecdsa("p256") => Some("P-256"),
            Self::Ecdsa("p384") => Some("P-384"),
            Self::Ecdsa("p521") => Some("P-521"),
            Self::Ecdsa(other) => Some(other),
            _ => None,
        }
    }
}

impl PartialEq for KeyType {
    fn eq(&self, other: &Self) -> bool {
        self.0.code == other.0.code
    }
}

impl Eq for KeyType {}

impl fmt::Debug for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.word)
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.word)
    }
}

impl Serialize for KeyType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.word)
    }
}

impl FromStr for KeyType {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::all().find(|kind| kind.word() == word).ok_or_else(|| {
            let words: Vec<_> = Self::all().map(Self::word).collect();
            format!("unknown key type {word:?}; there are {}", words.join(", "))
        })
    }
}

/// The dialect's words for hashes; `sha2-256` is the default.
pub(crate) static HASHES: [(&str, Hash, u64); 9] = [
    ("sha2-224", Hash::Sha224, ck::CKM_SHA224_HMAC),
    ("sha2-256", Hash::Sha256, ck::CKM_SHA256_HMAC),
    ("sha2-384", Hash::Sha384, ck::CKM_SHA384_HMAC),
    ("sha2-512", Hash::Sha512, ck::CKM_SHA512_HMAC),
    ("sha3-224", Hash::Sha3_224, ck::CKM_SHA3_224_HMAC),
    ("sha3-256", Hash::Sha3_256, ck::CKM_SHA3_256_HMAC),
    ("sha3-384", Hash::Sha3_384, ck::CKM_SHA3_384_HMAC),
    ("sha3-512", Hash::Sha3_512, ck::CKM_SHA3_512_HMAC),
    ("sha1", Hash::Sha1, ck::CKM_SHA_1_HMAC),
];

/// The dialect's word for one of these hashes.
pub(crate) fn hash_word(hash: Hash) -> &'static str {
    let found = HASHES.iter().find(|(_, known, _)| *known == hash);
    found.map_or("another hash", |(word, ..)| *word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_codes_are_unique() {
        for (at, row) in TABLE.iter().enumerate() {
            let twin = |other: &KeyTypeRow| other.word == row.word || other.code == row.code;
            assert!(!TABLE[..at].iter().any(twin), "{}", row.word);
            assert_eq!(row.word.parse::<KeyType>().unwrap().code(), row.code);
            assert_eq!(row.shape.word(), row.word);
        }
        let error = "aes-gcm".parse::<KeyType>().unwrap_err();
        assert!(error.contains("aes256-gcm96"), "{error}");
    }

    #[test]
    fn every_curve_is_one_that_can_be_made() {
        for kind in KeyType::all() {
            let (spec, _) = kind.shape().specs();
            if let Shape::Ecdsa(name) = kind.shape() {
                assert_eq!(spec.to_string(), format!("ec:{name}"));
            }
        }
        assert_eq!(Shape::Ed25519.specs().0.to_string(), "ec:ed25519");
    }
}
