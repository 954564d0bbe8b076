//! How a signature is made: what EVP_PKEY_CTX_set_rsa_padding(3) and its like have said.

use std::ffi::CStr;

use hsmux_software::PublicKey;
use hsmux_token::{Error, Hash, KeyKind, Kind, Mechanism, Params, Pss, Result, ck};

use super::names;
use super::value::ParamValue;

/// RSA_PKCS1_PADDING and RSA_PKCS1_PSS_PADDING (openssl/rsa.h).
const PADDINGS: [(SignaturePadding, i64, &str); 2] = [
    (SignaturePadding::Pkcs1, 1, "pkcs1"),
    (SignaturePadding::Pss, 6, "pss"),
];

/// Digest and padding, as far as they have been said.
#[derive(Clone, Default, Debug)]
pub struct SignatureScheme {
    /// The digest.
    pub hash: Option<Hash>,
    padding: SignaturePadding,
    salt: SaltLength,
    mgf: Option<Hash>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum SignaturePadding {
    #[default]
    Pkcs1,
    Pss,
}

/// Bytes of salt; RSA_PSS_SALTLEN_* (EVP_PKEY_CTX_set_rsa_pss_saltlen(3)).
#[derive(Clone, Copy, Default, Debug)]
enum SaltLength {
    /// As many as the digest has.
    Digest,
    /// As many as the key has room for.
    Most,
    /// The digest's, if there is room. This is OpenSSL's own default from 3.1 on, since tokens may refuse more (FIPS
    /// 186-5, section 5.4).
    #[default]
    MostOfDigest,
    Bytes(u64),
}

impl SignatureScheme {
    /// The default scheme with a digest.
    pub fn with(hash: Option<Hash>) -> Self {
        Self {
            hash,
            ..Self::default()
        }
    }

    /// OpenSSL's name of RSA's padding.
    pub fn padding(&self) -> Option<&'static str> {
        let row = PADDINGS.iter().find(|row| row.0 == self.padding)?;
        Some(row.2)
    }

    /// Takes a parameter; what is not known means nothing here.
    pub fn set(&mut self, name: &CStr, value: &ParamValue) -> Result<()> {
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
            (KeyKind::Rsa, SignaturePadding::Pkcs1) => (ck::CKM_RSA_PKCS, Params::None),
            (KeyKind::Rsa, SignaturePadding::Pss) => {
                (ck::CKM_RSA_PKCS_PSS, Params::Pss(self.pss(key)?))
            }
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
            SaltLength::Digest => hash.len() as u64,
            SaltLength::Most => most,
            SaltLength::MostOfDigest => most.min(hash.len() as u64),
            SaltLength::Bytes(bytes) => bytes,
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

/// The digest of a name.
pub fn hash(value: &ParamValue) -> Result<Hash> {
    let known = value.text().and_then(names::hash);
    known.ok_or_else(|| {
        invalid(format!(
            "digest {value}: tokens have SHA-1, SHA-2 and SHA-3; use SHA256"
        ))
    })
}

fn padding(value: &ParamValue) -> Result<SignaturePadding> {
    let is = |row: &&(SignaturePadding, i64, &str)| {
        value.int() == Some(row.1) || value.text() == Some(row.2)
    };
    let known = PADDINGS.iter().find(is);
    let known =
        known.ok_or_else(|| invalid(format!("padding {value}: there are pkcs1 and pss")))?;
    Ok(known.0)
}

fn salt(value: &ParamValue) -> Result<SaltLength> {
    let number = value.int().or_else(|| value.text()?.parse().ok());
    match (number, value.text()) {
        (Some(-1), _) | (_, Some("digest")) => Some(SaltLength::Digest),
        (Some(-2 | -3), _) | (_, Some("auto" | "max")) => Some(SaltLength::Most),
        (Some(-4), _) | (_, Some("auto-digestmax")) => Some(SaltLength::MostOfDigest),
        (Some(bytes), _) => u64::try_from(bytes).ok().map(SaltLength::Bytes),
        _ => None,
    }
    .ok_or_else(|| invalid(format!("saltlen {value}: not a length of salt")))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::request(Kind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use hsmux_token::Attributes;

    use super::*;

    fn rsa(bits: usize) -> PublicKey {
        let mut modulus = vec![0xff; bits.div_ceil(8)];
        modulus[0] = 0xff >> (8 * modulus.len() - bits);
        let attributes = Attributes::default()
            .with_number(ck::CKA_KEY_TYPE, ck::CKK_RSA)
            .with(ck::CKA_MODULUS, modulus)
            .with(ck::CKA_PUBLIC_EXPONENT, vec![1, 0, 1]);
        PublicKey::from_attributes(&attributes).unwrap()
    }

    fn scheme(said: &[(&CStr, ParamValue)]) -> SignatureScheme {
        let mut scheme = SignatureScheme::default();
        for (name, value) in said {
            scheme.set(name, value).unwrap();
        }
        scheme
    }

    /// As libssl says it, by texts, and as others may, by numbers.
    #[test]
    fn pss_is_said_in_two_ways() {
        let digest = (names::DIGEST, ParamValue::Text("SHA2-384"));
        let texts = [
            digest.clone(),
            (names::PAD_MODE, ParamValue::Text("pss")),
            (names::SALT, ParamValue::Text("digest")),
        ];
        let numbers = [
            digest,
            (names::PAD_MODE, ParamValue::Int(6)),
            (names::SALT, ParamValue::Int(-1)),
        ];
        for said in [texts, numbers] {
            let mechanism = scheme(&said).mechanism(&rsa(2048), true).unwrap();
            assert_eq!(mechanism.kind, ck::CKM_SHA384_RSA_PKCS_PSS);
            let pss = Pss {
                hash: ck::CKM_SHA384,
                mgf: ck::CKG_MGF1_SHA384,
                salt: 48,
            };
            assert_eq!(mechanism.params, Params::Pss(pss));
        }
    }

    #[test]
    fn a_salt_has_the_length_that_was_said() {
        // The most by RFC 8017, section 9.1.1: 222 bytes with SHA-256 for 2048 and 2049 bits, and one more then.
        for (bits, said, expected) in [
            (2048, "max", 222),
            (2048, "auto", 222),
            (2049, "max", 222),
            (2050, "max", 223),
            (2048, "auto-digestmax", 32),
            (2048, "-1", 32),
            (2048, "-3", 222),
            (2048, "20", 20),
            (2048, "0", 0),
        ] {
            let scheme = scheme(&[
                (names::DIGEST, ParamValue::Text("SHA256")),
                (names::PAD_MODE, ParamValue::Text("pss")),
                (names::SALT, ParamValue::Text(said)),
            ]);
            let Params::Pss(pss) = scheme.mechanism(&rsa(bits), false).unwrap().params else {
                panic!("PSS");
            };
            assert_eq!(pss.salt, expected, "{said}, {bits} bits");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (name, value) in [
            (names::DIGEST, ParamValue::Text("MD5-SHA1")),
            (names::PAD_MODE, ParamValue::Text("none")),
            (names::PAD_MODE, ParamValue::Int(3)),
            (names::SALT, ParamValue::Text("much")),
            (names::SALT, ParamValue::Int(-7)),
        ] {
            let refused = SignatureScheme::default().set(name, &value);
            assert!(refused.is_err(), "{name:?}: {value:?}");
        }
        let without_digest = SignatureScheme::default().mechanism(&rsa(2048), true);
        assert!(without_digest.is_err());
    }
}
