//! How a signature is made: what EVP_PKEY_CTX_set_rsa_padding(3) and its like have said.

use std::ffi::CStr;

use hsmux_software::PublicKey;
use hsmux_token::{Error, Hash, KeyKind, Kind, Mechanism, Params, Pss, Result, ck};

use super::names;
use super::value::Value;

/// RSA_PKCS1_PADDING and RSA_PKCS1_PSS_PADDING (openssl/rsa.h).
const PADDINGS: [(Padding, i64, &str); 2] =
    [(Padding::Pkcs1, 1, "pkcs1"), (Padding::Pss, 6, "pss")];

/// Digest and padding, as far as they have been said.
#[derive(Clone, Default, Debug)]
pub struct Scheme {
    /// The digest.
    pub hash: Option<Hash>,
    padding: Padding,
    salt: Salt,
    mgf: Option<Hash>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Padding {
    #[default]
    Pkcs1,
    Pss,
}

/// Bytes of salt; RSA_PSS_SALTLEN_* (EVP_PKEY_CTX_set_rsa_pss_saltlen(3)).
#[derive(Clone, Copy, Default, Debug)]
enum Salt {
    /// As many as the digest has.
    Digest,
    /// As many as the key has room for.
    #[default]
    Most,
    /// The digest's, if there is room.
    MostOfDigest,
    Bytes(u64),
}

impl Scheme {
    /// Takes a parameter; what is not known means nothing here.
    pub fn set(&mut self, name: &CStr, value: &Value) -> Result<()> {
        if name == names::DIGEST {
            self.hash = Some(hash(value)?);
        } else if name == names::MGF1_DIGEST {
            self.mgf = Some(hash(value)?);
        } else if name == names::PAD_MODE {
            self.padding = padding(value)?;
        } else if name == names::SALT {
            self.salt = salt(value)?;
        }
        Ok(())
    }

    /// The mechanism for a key: one that `hashes`, or the one that takes a digest.
    pub fn mechanism(&self, key: &PublicKey, hashes: bool) -> Result<Mechanism> {
        let (raw, params) = match (key.kind(), self.padding) {
            (KeyKind::Rsa, Padding::Pkcs1) => (ck::CKM_RSA_PKCS, Params::None),
            (KeyKind::Rsa, Padding::Pss) => (ck::CKM_RSA_PKCS_PSS, Params::Pss(self.pss(key)?)),
            _ => (ck::CKM_ECDSA, Params::None),
        };
        let kind = if hashes {
            hashing(self.known_hash()?, raw)?
        } else {
            raw
        };
        Ok(Mechanism { kind, params })
    }

    fn pss(&self, key: &PublicKey) -> Result<Pss> {
        let hash = self.known_hash()?;
        // RFC 8017, section 9.1.1: the encoded message has one bit less than the modulus.
        let room = (key.bits() - 1).div_ceil(8) as u64;
        let most = room.saturating_sub(hash.len() as u64 + 2);
        let salt = match self.salt {
            Salt::Digest => hash.len() as u64,
            Salt::Most => most,
            Salt::MostOfDigest => most.min(hash.len() as u64),
            Salt::Bytes(bytes) => bytes,
        };
        Ok(Pss {
            hash: hash.mechanism(),
            mgf: self.mgf.unwrap_or(hash).mgf(),
            salt,
        })
    }

    fn known_hash(&self) -> Result<Hash> {
        self.hash.ok_or_else(|| invalid("no digest was said"))
    }
}

/// The mechanism that hashes, and goes on as `raw`.
fn hashing(hash: Hash, raw: u64) -> Result<u64> {
    let is = |prehash: hsmux_token::Prehash| prehash.hash == hash && prehash.raw == raw;
    let mut all = hsmux_token::entries().iter();
    let found = all.find(|entry| entry.prehash.is_some_and(is));
    let found =
        found.ok_or_else(|| invalid(format!("{hash:?}: no signatures with this digest")))?;
    Ok(found.kind)
}

fn hash(value: &Value) -> Result<Hash> {
    let known = value.text().and_then(names::hash);
    known.ok_or_else(|| invalid(format!("digest {value:?}: there is none of this name")))
}

fn padding(value: &Value) -> Result<Padding> {
    let is =
        |row: &&(Padding, i64, &str)| value.int() == Some(row.1) || value.text() == Some(row.2);
    let known = PADDINGS.iter().find(is);
    let known =
        known.ok_or_else(|| invalid(format!("padding {value:?}: there are pkcs1 and pss")))?;
    Ok(known.0)
}

fn salt(value: &Value) -> Result<Salt> {
    let number = value.int().or_else(|| value.text()?.parse().ok());
    match (number, value.text()) {
        (Some(-1), _) | (_, Some("digest")) => Some(Salt::Digest),
        (Some(-2 | -3), _) | (_, Some("auto" | "max")) => Some(Salt::Most),
        (Some(-4), _) | (_, Some("auto-digestmax")) => Some(Salt::MostOfDigest),
        (Some(bytes), _) => u64::try_from(bytes).ok().map(Salt::Bytes),
        _ => None,
    }
    .ok_or_else(|| invalid(format!("saltlen {value:?}: not a length of salt")))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::request(Kind::Invalid, message)
}
