//! RSA against the openssl CLI.

mod common;

use common::{Pair, code, openssl};
use hsmux_software::{PublicKey, digest};
use hsmux_token::{Hash, Mechanism, Oaep, Params, Pss, ck};

const HASHES: [(&str, Hash, u64, u64); 5] = [
    (
        "-sha1",
        Hash::Sha1,
        ck::CKM_SHA1_RSA_PKCS,
        ck::CKM_SHA1_RSA_PKCS_PSS,
    ),
    (
        "-sha224",
        Hash::Sha224,
        ck::CKM_SHA224_RSA_PKCS,
        ck::CKM_SHA224_RSA_PKCS_PSS,
    ),
    (
        "-sha256",
        Hash::Sha256,
        ck::CKM_SHA256_RSA_PKCS,
        ck::CKM_SHA256_RSA_PKCS_PSS,
    ),
    (
        "-sha384",
        Hash::Sha384,
        ck::CKM_SHA384_RSA_PKCS,
        ck::CKM_SHA384_RSA_PKCS_PSS,
    ),
    (
        "-sha512",
        Hash::Sha512,
        ck::CKM_SHA512_RSA_PKCS,
        ck::CKM_SHA512_RSA_PKCS_PSS,
    ),
];

#[test]
fn pkcs1_signatures_of_every_hash_and_size_verify() {
    for bits in [1024, 1025, 2048, 3072] {
        let pair = Pair::rsa(bits);
        assert_eq!(pair.public.bits(), bits);
        for (name, _, mechanism, _) in HASHES {
            let mechanism = Mechanism::plain(mechanism);
            let mut signature = pair.sign_hashed(name, &[], b"message");
            assert_eq!(signature.len(), pair.public.signature_len());
            pair.public
                .verify(&mechanism, b"message", &signature)
                .unwrap();
            let invalid = ck::CKR_SIGNATURE_INVALID;
            assert_eq!(
                code(pair.public.verify(&mechanism, b"massage", &signature)),
                invalid
            );
            signature[20] ^= 1;
            assert_eq!(
                code(pair.public.verify(&mechanism, b"message", &signature)),
                invalid
            );
            signature.pop();
            let short = pair.public.verify(&mechanism, b"message", &signature);
            assert_eq!(code(short), ck::CKR_SIGNATURE_LEN_RANGE);
        }
    }
}

#[test]
fn sha3_signatures_verify() {
    let pair = Pair::rsa(2048);
    for (name, mechanism) in [
        ("-sha3-224", ck::CKM_SHA3_224_RSA_PKCS),
        ("-sha3-256", ck::CKM_SHA3_256_RSA_PKCS),
        ("-sha3-384", ck::CKM_SHA3_384_RSA_PKCS),
        ("-sha3-512", ck::CKM_SHA3_512_RSA_PKCS),
    ] {
        let signature = pair.sign_hashed(name, &[], b"message");
        pair.public
            .verify(&Mechanism::plain(mechanism), b"message", &signature)
            .unwrap();
    }
}

#[test]
fn pss_signatures_verify_with_their_own_salt_length_only() {
    // 1025 and 1026 bits: the encoded message is one byte shorter than the modulus, and just as long.
    for bits in [1025, 1026, 2048] {
        let pair = Pair::rsa(bits);
        assert_eq!(pair.public.bits(), bits);
        for (name, hash, _, kind) in HASHES {
            for salt in [0_u64, 11, 28] {
                let options = ["rsa_padding_mode:pss", &format!("rsa_pss_saltlen:{salt}")];
                let signature = pair.sign_hashed(name, &options, b"message");
                let verify = |kind, salt, data: &[u8]| {
                    let params = Pss {
                        hash: hash.mechanism(),
                        mgf: hash.mgf(),
                        salt,
                    };
                    let mechanism = Mechanism {
                        kind,
                        params: Params::Pss(params),
                    };
                    pair.public.verify(&mechanism, data, &signature)
                };
                verify(kind, salt, b"message").unwrap();
                verify(ck::CKM_RSA_PKCS_PSS, salt, &digest(hash, b"message")).unwrap();
                let invalid = ck::CKR_SIGNATURE_INVALID;
                assert_eq!(code(verify(kind, salt, b"massage")), invalid);
                assert_eq!(code(verify(kind, salt + 1, b"message")), invalid);
                assert_eq!(code(verify(kind, u64::MAX, b"message")), invalid);
                let bare = verify(ck::CKM_RSA_PKCS_PSS, salt, b"not a digest");
                assert_eq!(code(bare), ck::CKR_DATA_LEN_RANGE);
            }
        }
    }
}

#[test]
fn pss_may_have_two_hashes() {
    let pair = Pair::rsa(2048);
    let options = [
        "rsa_padding_mode:pss",
        "rsa_pss_saltlen:20",
        "rsa_mgf1_md:sha1",
    ];
    let signature = pair.sign_hashed("-sha256", &options, b"message");
    let params = Pss {
        hash: ck::CKM_SHA256,
        mgf: ck::CKG_MGF1_SHA1,
        salt: 20,
    };
    let mechanism = Mechanism {
        kind: ck::CKM_SHA256_RSA_PKCS_PSS,
        params: Params::Pss(params),
    };
    pair.public
        .verify(&mechanism, b"message", &signature)
        .unwrap();
    let bare = Mechanism::plain(ck::CKM_SHA256_RSA_PKCS_PSS);
    let missing = pair.public.verify(&bare, b"message", &signature);
    assert_eq!(code(missing), ck::CKR_MECHANISM_PARAM_INVALID);
}

#[test]
fn raw_signatures_verify_and_give_their_data_back() {
    let pair = Pair::rsa(2048);
    let pkcs = Mechanism::plain(ck::CKM_RSA_PKCS);
    let x509 = Mechanism::plain(ck::CKM_RSA_X_509);
    let signature = pair.pkeyutl(&["-sign"], &["rsa_padding_mode:pkcs1"], b"any short data");
    pair.public
        .verify(&pkcs, b"any short data", &signature)
        .unwrap();
    assert_eq!(
        pair.public.verify_recover(&pkcs, &signature).unwrap(),
        b"any short data"
    );

    let block = pair.public.verify_recover(&x509, &signature).unwrap();
    assert_eq!(block.len(), 256);
    assert!(block.starts_with(&[0, 1, 0xff]) && block.ends_with(b"\0any short data"));
    pair.public.verify(&x509, &block, &signature).unwrap();
    pair.public.verify(&x509, &block[1..], &signature).unwrap();
    let long = pair.public.verify(&pkcs, &[7; 246], &signature);
    assert_eq!(code(long), ck::CKR_DATA_LEN_RANGE);
    // Not a number below the modulus.
    assert_eq!(
        code(pair.public.verify(&pkcs, b"x", &[0xff; 256])),
        ck::CKR_SIGNATURE_INVALID
    );
}

#[test]
fn the_private_key_reads_what_is_enciphered() {
    let pair = Pair::rsa(2048);
    let oaep = |hash: Hash, mgf: Hash, label: &'static [u8]| Mechanism {
        kind: ck::CKM_RSA_PKCS_OAEP,
        params: Params::Oaep(Oaep {
            hash: hash.mechanism(),
            mgf: mgf.mgf(),
            label: label.into(),
        }),
    };
    let oaep_mode = "rsa_padding_mode:oaep";
    let cases: [(Mechanism, &[&str]); 4] = [
        (
            Mechanism::plain(ck::CKM_RSA_PKCS),
            &["rsa_padding_mode:pkcs1"],
        ),
        (oaep(Hash::Sha1, Hash::Sha1, b""), &[oaep_mode]),
        (
            oaep(Hash::Sha256, Hash::Sha256, b""),
            &[oaep_mode, "rsa_oaep_md:sha256"],
        ),
        (
            oaep(Hash::Sha256, Hash::Sha1, b"\xfflabel"),
            &[
                oaep_mode,
                "rsa_oaep_md:sha256",
                "rsa_mgf1_md:sha1",
                "rsa_oaep_label:ff6c6162656c",
            ],
        ),
    ];
    for (mechanism, options) in cases {
        for secret in [&b""[..], b"a key", &[9; 190]] {
            let text = pair.public.encrypt(&mechanism, secret).unwrap();
            assert_eq!(pair.pkeyutl(&["-decrypt"], options, &text), secret);
            assert_ne!(text, pair.public.encrypt(&mechanism, secret).unwrap());
        }
        let long = pair.public.encrypt(&mechanism, &[9; 246]).unwrap_err();
        assert_eq!(long.code(), Some(ck::CKR_DATA_LEN_RANGE));
    }
    let x509 = Mechanism::plain(ck::CKM_RSA_X_509);
    let text = pair.public.encrypt(&x509, b"number").unwrap();
    let plain = pair.pkeyutl(&["-decrypt"], &["rsa_padding_mode:none"], &text);
    assert!(plain.ends_with(b"\0number") && plain.len() == 256);
}

#[test]
fn a_key_of_8192_bits_verifies() {
    let key = PublicKey::from_spki(include_bytes!("data/rsa8192.spki")).unwrap();
    let mechanism = Mechanism::plain(ck::CKM_SHA256_RSA_PKCS);
    key.verify(&mechanism, b"message", include_bytes!("data/rsa8192.sig"))
        .unwrap();
}

#[test]
fn what_is_no_key_is_refused() {
    let rsa = |modulus: &[u8], exponent: &[u8]| {
        let attributes = hsmux_token::Attributes::default()
            .with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY)
            .with_number(ck::CKA_KEY_TYPE, ck::CKK_RSA)
            .with(ck::CKA_MODULUS, modulus.to_vec())
            .with(ck::CKA_PUBLIC_EXPONENT, exponent.to_vec());
        PublicKey::from_attributes(&attributes)
    };
    assert!(rsa(&[0xff; 128], &[1, 0, 1]).is_ok());
    for (modulus, exponent) in [
        (&[0xff; 8][..], &[1, 0, 1][..]),
        (&[0xfe; 128], &[1, 0, 1]),
        (&[0xff; 128], &[1]),
        (&[0xff; 128], &[2]),
        (&[0xff; 128], &[0xff; 64]),
        (&[], &[]),
    ] {
        rsa(modulus, exponent).unwrap_err();
    }
    let ed448 = openssl(
        &["pkey", "-pubin", "-inform", "PEM", "-outform", "DER"],
        ED448.as_bytes(),
    );
    assert!(
        PublicKey::from_spki(&ed448).is_ok(),
        "a curve without arithmetic still has a name"
    );
    for cut in 0..ed448.len() {
        PublicKey::from_spki(&ed448[..cut]).unwrap_err();
    }
}

/// RFC 8032, section 7.4, the blank message's key.
const ED448: &str = "-----BEGIN PUBLIC KEY-----
MEMwBQYDK2VxAzoAX9dEm1m0YfDSrHh4ahwIVFhKk1bwYsSEvhDWmMfUDpGz7g8PJoEcWNt3Tm7M
tdHl2F55Xkq86bqA
-----END PUBLIC KEY-----
";
