//! Keys that hsmux cannot compute with: they serve on the one token that has them, without a proof.

use std::borrow::Cow;

use hsmux_token::{Attributes, KeyKind, ck, key_type_name};

use crate::{PublicKey, curve};

/// The type (`ML-DSA`) or the curve (`Ed448`) of a key that hsmux cannot compute with; `None` for all others. Such a
/// key cannot be proved, only its token can name it, and its signatures are verified there.
pub fn unchecked_kind(attributes: &Attributes) -> Option<Cow<'static, str>> {
    let class = attributes.number(ck::CKA_CLASS)?;
    if !matches!(class, ck::CKO_PUBLIC_KEY | ck::CKO_PRIVATE_KEY) {
        return None;
    }
    let key_type = attributes.number(ck::CKA_KEY_TYPE)?;
    unchecked(KeyKind::of(key_type), key_type_name(key_type), attributes)
}

/// The same of a pair that a mechanism (`CKM_*`) is to make by this template of its public half.
pub fn unchecked_pair(mechanism: u64, public: &Attributes) -> Option<Cow<'static, str>> {
    let kind = hsmux_token::entry(mechanism)?.key;
    unchecked(kind, kind.name().into(), public)
}

fn unchecked(
    kind: KeyKind,
    name: Cow<'static, str>,
    attributes: &Attributes,
) -> Option<Cow<'static, str>> {
    match kind {
        KeyKind::Rsa => None,
        KeyKind::Ec | KeyKind::Edwards | KeyKind::Montgomery => {
            match attributes.get(ck::CKA_EC_PARAMS) {
                Some(params) if !params.is_empty() => curve::without_arithmetic(kind, params),
                _ => PublicKey::from_attributes(attributes)
                    .ok()?
                    .unchecked_curve(),
            }
            .map(Cow::Owned)
        }
        _ => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(key_type: u64, params: &[u8]) -> Option<String> {
        let attributes = Attributes::default()
            .with_number(ck::CKA_CLASS, ck::CKO_PRIVATE_KEY)
            .with_number(ck::CKA_KEY_TYPE, key_type)
            .with(ck::CKA_EC_PARAMS, params.to_vec());
        unchecked_kind(&attributes).map(Cow::into_owned)
    }

    #[test]
    fn types_and_curves_without_arithmetic_are_named() {
        let named = |key_type, params: &[u8]| kind(key_type, params).unwrap();
        assert_eq!(named(ck::CKK_ML_DSA, b""), "ML-DSA");
        assert_eq!(named(0x8000_0001, b""), "0x80000001");
        assert_eq!(named(ck::CKK_EC_EDWARDS, b"\x06\x03\x2b\x65\x71"), "Ed448");
        assert_eq!(named(ck::CKK_EC_EDWARDS, b"\x13\x0aedwards448"), "Ed448");
        let brainpool = b"\x06\x09\x2b\x24\x03\x03\x02\x08\x01\x01\x0d";
        assert_eq!(named(ck::CKK_EC, brainpool), "brainpoolP512r1");
        let unknown = b"\x06\x03\x2a\x03\x04";
        assert_eq!(named(ck::CKK_EC, unknown), "1.2.3.4");
    }

    #[test]
    fn pairs_are_known_before_they_are_made() {
        let pair = |mechanism, params: &[u8]| {
            let public = Attributes::default().with(ck::CKA_EC_PARAMS, params.to_vec());
            unchecked_pair(mechanism, &public).map(Cow::into_owned)
        };
        let ed448 = b"\x06\x03\x2b\x65\x71";
        let named = pair(ck::CKM_EC_EDWARDS_KEY_PAIR_GEN, ed448);
        assert_eq!(named.as_deref(), Some("Ed448"));
        assert_eq!(pair(ck::CKM_DSA_KEY_PAIR_GEN, b"").as_deref(), Some("DSA"));
        let p256 = b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
        assert_eq!(pair(ck::CKM_EC_KEY_PAIR_GEN, p256), None);
        assert_eq!(pair(ck::CKM_RSA_PKCS_KEY_PAIR_GEN, b""), None);
        assert_eq!(pair(0x8000_0001, b""), None);
    }

    #[test]
    fn keys_that_this_process_computes_with_are_not() {
        assert_eq!(kind(ck::CKK_RSA, b""), None);
        let p256 = b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
        assert_eq!(kind(ck::CKK_EC, p256), None);
        assert_eq!(kind(ck::CKK_EC_EDWARDS, b"\x06\x03\x2b\x65\x70"), None);
        // It does not say its curve: the proof decides.
        assert_eq!(kind(ck::CKK_EC, b""), None);
        let secret = Attributes::default()
            .with_number(ck::CKA_CLASS, ck::CKO_SECRET_KEY)
            .with_number(ck::CKA_KEY_TYPE, ck::CKK_AES);
        assert!(unchecked_kind(&secret).is_none());
    }
}
