//! ECDSA and Ed25519 against the openssl CLI.

mod common;

use common::{Pair, code, openssl, path, raw};
use hsmux_software::{PublicKey, digest};
use hsmux_token::{Attributes, Blob, Hash, KeyKind, Kind, Mechanism, Params, ck};

const CURVES: [(&str, usize, usize); 9] = [
    ("secp224r1", 224, 56),
    ("prime256v1", 256, 64),
    ("secp384r1", 384, 96),
    ("secp521r1", 521, 132),
    ("secp256k1", 256, 64),
    ("brainpoolP256r1", 256, 64),
    ("brainpoolP256t1", 256, 64),
    ("brainpoolP384r1", 384, 96),
    ("brainpoolP384t1", 384, 96),
];

const HASHES: [(&str, Hash, u64); 6] = [
    ("-sha1", Hash::Sha1, ck::CKM_ECDSA_SHA1),
    ("-sha224", Hash::Sha224, ck::CKM_ECDSA_SHA224),
    ("-sha256", Hash::Sha256, ck::CKM_ECDSA_SHA256),
    ("-sha384", Hash::Sha384, ck::CKM_ECDSA_SHA384),
    ("-sha512", Hash::Sha512, ck::CKM_ECDSA_SHA512),
    ("-sha3-256", Hash::Sha3_256, ck::CKM_ECDSA_SHA3_256),
];

#[test]
fn ecdsa_signatures_of_every_curve_and_hash_verify() {
    for (curve, bits, len) in CURVES {
        let pair = Pair::ec(curve);
        assert_eq!(
            (pair.public.bits(), pair.public.signature_len()),
            (bits, len)
        );
        for (name, hash, mechanism) in HASHES {
            let der = pair.sign_hashed(name, &[], b"message");
            let mut signature = raw(&der, len);
            let verify = |kind, data: &[u8], signature: &[u8]| {
                pair.public.verify(&Mechanism::plain(kind), data, signature)
            };
            verify(mechanism, b"message", &signature).unwrap();
            verify(ck::CKM_ECDSA, &digest(hash, b"message"), &signature).unwrap();
            let invalid = ck::CKR_SIGNATURE_INVALID;
            assert_eq!(code(verify(mechanism, b"massage", &signature)), invalid);
            signature[len - 1] ^= 1;
            assert_eq!(code(verify(mechanism, b"message", &signature)), invalid);
            assert_eq!(code(verify(mechanism, b"message", &vec![0; len])), invalid);
            assert_eq!(
                code(verify(mechanism, b"message", &vec![0xff; len])),
                invalid
            );
            for wrong in [0, 1, len - 1, len + 2] {
                let refused = verify(mechanism, b"message", &vec![1; wrong]);
                assert_eq!(code(refused), ck::CKR_SIGNATURE_LEN_RANGE);
            }
        }
    }
}

#[test]
fn raw_ecdsa_takes_data_of_any_length() {
    for (curve, _, len) in CURVES {
        let pair = Pair::ec(curve);
        for data in [&[1][..], &[7; 20], &[0xa5; 64]] {
            let signature = raw(&pair.pkeyutl(&["-sign"], &[], data), len);
            let mechanism = Mechanism::plain(ck::CKM_ECDSA);
            pair.public.verify(&mechanism, data, &signature).unwrap();
        }
    }
}

#[test]
fn a_point_is_read_in_every_form_that_tokens_write() {
    let pair = Pair::ec("prime256v1");
    let written = pair.public.to_attributes();
    assert_eq!(PublicKey::from_attributes(&written).unwrap(), pair.public);
    let wrapped = written.get(ck::CKA_EC_POINT).unwrap().to_vec();
    let bare = wrapped[2..].to_vec();
    let compressed = openssl(
        &[
            "ec",
            "-in",
            path(&pair.file()),
            "-pubout",
            "-conv_form",
            "compressed",
            "-outform",
            "DER",
        ],
        &[],
    );
    assert_eq!(
        PublicKey::from_spki(&compressed).unwrap().spki(),
        pair.public.spki()
    );
    let compressed = compressed[compressed.len() - 33..].to_vec();
    let named = b"\x13\x09secp256r1".to_vec();
    for (params, point) in [
        (None, bare),
        (None, compressed),
        (Some(named), wrapped.clone()),
    ] {
        let mut other = written.clone().with(ck::CKA_EC_POINT, point);
        if let Some(params) = params {
            other.set(ck::CKA_EC_PARAMS, params);
        }
        assert_eq!(PublicKey::from_attributes(&other).unwrap(), pair.public);
    }
    let mut off = wrapped;
    off[40] ^= 1;
    PublicKey::from_attributes(&written.with(ck::CKA_EC_POINT, off)).unwrap_err();
}

#[test]
fn ed25519_verifies_pure_and_prehashed() {
    let pair = Pair::generate(&["-algorithm", "ED25519"]);
    assert_eq!(pair.public.kind(), KeyKind::Edwards);
    let signature = pair.pkeyutl(&["-sign", "-rawin"], &[], b"message");
    let mechanism = Mechanism::plain(ck::CKM_EDDSA);
    pair.public
        .verify(&mechanism, b"message", &signature)
        .unwrap();
    let invalid = pair.public.verify(&mechanism, b"massage", &signature);
    assert_eq!(code(invalid), ck::CKR_SIGNATURE_INVALID);
    let short = pair.public.verify(&mechanism, b"message", &signature[..63]);
    assert_eq!(code(short), ck::CKR_SIGNATURE_LEN_RANGE);
    let written = pair.public.to_attributes();
    assert_eq!(PublicKey::from_attributes(&written).unwrap(), pair.public);
    let softhsm = written.with(ck::CKA_EC_PARAMS, b"\x13\x0cedwards25519".to_vec());
    assert_eq!(PublicKey::from_attributes(&softhsm).unwrap(), pair.public);
}

/// RFC 8032, section 7.3.
#[test]
fn ed25519ph_verifies_the_published_example() {
    let point =
        hex::decode("ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf").unwrap();
    let signature = hex::decode(
        "98a70222f0b8121aa9d30f813d683f809e462b469c7ff87639499bb94e6dae4131f85042463c2a355a2003d062adf5aaa10b8c61e636062aaad11c2a26083406",
    )
    .unwrap();
    let key = Attributes::default()
        .with_number(ck::CKA_KEY_TYPE, ck::CKK_EC_EDWARDS)
        .with(ck::CKA_EC_PARAMS, b"\x06\x03\x2b\x65\x70".to_vec())
        .with(ck::CKA_EC_POINT, point);
    let key = PublicKey::from_attributes(&key).unwrap();
    let mechanism = |prehash, context: &'static [u8]| Mechanism {
        kind: ck::CKM_EDDSA,
        params: Params::Eddsa {
            prehash,
            context: Blob::from(context),
        },
    };
    key.verify(&mechanism(true, b""), b"abc", &signature)
        .unwrap();
    let other = key.verify(&mechanism(true, b"context"), b"abc", &signature);
    assert_eq!(code(other), ck::CKR_SIGNATURE_INVALID);
    let unknown = key
        .verify(&mechanism(false, b"context"), b"abc", &signature)
        .unwrap_err();
    assert_eq!(unknown.kind(), Kind::Unsupported);
}

#[test]
fn a_curve_without_arithmetic_has_a_name_and_says_so() {
    let pair = Pair::ec("brainpoolP512r1");
    assert_eq!(
        (pair.public.bits(), pair.public.signature_len()),
        (512, 128)
    );
    assert_eq!(pair.public.curve().unwrap(), "brainpoolP512r1");
    assert_eq!(
        PublicKey::from_attributes(&pair.public.to_attributes()).unwrap(),
        pair.public
    );
    let refused = pair
        .public
        .verify(&Mechanism::plain(ck::CKM_ECDSA), &[1; 64], &[1; 128]);
    assert!(refused.unwrap_err().to_string().contains("brainpoolP512r1"));
}

#[test]
fn a_mechanism_of_another_family_is_refused() {
    let pair = Pair::ec("prime256v1");
    for mechanism in [ck::CKM_SHA256_RSA_PKCS, ck::CKM_EDDSA, ck::CKM_AES_CMAC] {
        let refused = pair
            .public
            .verify(&Mechanism::plain(mechanism), b"x", &[1; 64]);
        assert_eq!(code(refused), ck::CKR_KEY_TYPE_INCONSISTENT);
    }
    let refused = pair
        .public
        .encrypt(&Mechanism::plain(ck::CKM_RSA_PKCS), b"x")
        .unwrap_err();
    assert_eq!(refused.code(), Some(ck::CKR_KEY_TYPE_INCONSISTENT));
}

/// A bare point begins with 04, as an OCTET STRING does. If x begins with the length of the rest, only the curve
/// tells them apart. The arithmetic of this curve is unknown here, so no check of the point helps.
#[test]
fn a_bare_point_that_looks_like_an_octet_string() {
    let params = hex::decode("06092b240303020801010d").unwrap(); // brainpoolP512r1
    let mut point = vec![0x5a; 129];
    point[..2].copy_from_slice(&[4, 127]);
    let wrapped = [&[4, 0x81, 129][..], &point].concat();
    let key = |point: &[u8]| {
        let attributes = Attributes::default()
            .with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY)
            .with_number(ck::CKA_KEY_TYPE, ck::CKK_EC)
            .with(ck::CKA_EC_PARAMS, params.clone())
            .with(ck::CKA_EC_POINT, point.to_vec());
        PublicKey::from_attributes(&attributes).unwrap()
    };
    assert!(key(&point).spki().ends_with(&point));
    assert_eq!(key(&point).spki(), key(&wrapped).spki());
}
