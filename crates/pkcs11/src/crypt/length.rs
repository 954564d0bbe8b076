//! How long an answer will be, without asking a token.

use hsmux_token::ck::*;
use hsmux_token::{Hash, Mechanism, Params};

/// The length of an answer as far as it is known beforehand, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerLength {
    /// This long.
    Exact(usize),
    /// Not longer.
    AtMost(usize),
    /// Only the operation itself shows it.
    Unknown,
}

impl AnswerLength {
    /// Exact, if it is known at all.
    pub fn exact(len: Option<usize>) -> Self {
        len.map_or(Self::Unknown, Self::Exact)
    }

    /// A bound, if one is known at all.
    pub fn at_most(len: Option<usize>) -> Self {
        len.map_or(Self::Unknown, Self::AtMost)
    }
}

/// How much longer an ECDSA signature is as DER (RFC 3279, section 2.2.3): three tags, lengths of at most two bytes,
/// and a zero before either number.
pub const DER: usize = 9;

/// Length of a MAC.
pub fn of_mac(mechanism: &Mechanism) -> Option<usize> {
    let hash = match mechanism.kind {
        CKM_AES_CMAC => return Some(16),
        CKM_DES3_CMAC | CKM_AES_MAC => return Some(8),
        CKM_AES_CMAC_GENERAL => {
            let Params::Number(len) = mechanism.params else {
                return None;
            };
            return usize::try_from(len).ok();
        }
        CKM_MD5_HMAC => Hash::Md5,
        CKM_SHA_1_HMAC => Hash::Sha1,
        CKM_SHA224_HMAC => Hash::Sha224,
        CKM_SHA256_HMAC => Hash::Sha256,
        CKM_SHA384_HMAC => Hash::Sha384,
        CKM_SHA512_HMAC => Hash::Sha512,
        CKM_SHA3_224_HMAC => Hash::Sha3_224,
        CKM_SHA3_256_HMAC => Hash::Sha3_256,
        CKM_SHA3_384_HMAC => Hash::Sha3_384,
        CKM_SHA3_512_HMAC => Hash::Sha3_512,
        _ => return None,
    };
    Some(hash.len())
}

/// Length of the tag that CKM_AES_GCM puts after the text.
pub fn of_tag(mechanism: &Mechanism) -> Option<usize> {
    match &mechanism.params {
        Params::Gcm(gcm) => Some(gcm.tag_bits as usize / 8),
        _ => None,
    }
}
