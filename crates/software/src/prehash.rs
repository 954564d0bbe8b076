//! Hashing on the host: only the digest travels to the token.

use std::borrow::Cow;

use hsmux_token::{Hash, Mechanism, ck, entry};

/// For a mechanism that hashes: the hash, and the mechanism that takes the digest.
///
/// `CKM_SHA256_RSA_PKCS` gives SHA-256 and `CKM_RSA_PKCS`; what does not hash gives `None`. The
/// parameter (of PSS) goes along unchanged.
pub fn prehash(mechanism: &Mechanism) -> Option<(Hash, Mechanism)> {
    let prehash = entry(mechanism.kind)?.prehash?;
    let raw = Mechanism {
        kind: prehash.raw,
        params: mechanism.params.clone(),
    };
    Some((prehash.hash, raw))
}

/// The input of the raw mechanism: the digest, for `CKM_RSA_PKCS` inside a DigestInfo (RFC 8017, section 9.2).
pub fn prehashed_input<'a>(hash: Hash, raw: &Mechanism, digest: &'a [u8]) -> Cow<'a, [u8]> {
    if raw.kind == ck::CKM_RSA_PKCS {
        [hash.digest_info_prefix(), digest].concat().into()
    } else {
        digest.into()
    }
}
