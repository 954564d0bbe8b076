use std::fs;
use std::process::Command;

use hsmux_smartcard::cvc::{Certificate, CvcRequest};
use hsmux_smartcard::tlv::tlv;
use hsmux_smartcard::{Curve, ecdsa_fixed};
use hsmux_software::PublicKey;
use hsmux_token::{Hash, Mechanism, ck};

use crate::host::{ALL, Host, digest_info, ec_body, padded, pss, rsa_body};

const DATA: &[u8] = b"what is signed";

fn public(request: &[u8]) -> PublicKey {
    let request = CvcRequest::parse(request).unwrap();
    request.certificate.public_key.to_public_key().unwrap()
}

fn curve(name: &str) -> &'static Curve {
    Curve::by_name(name).unwrap()
}

/// Verifies a `signature` of [`DATA`] by SHA-256 with OpenSSL, which knows every curve.
fn openssl_verifies(key: &PublicKey, signature: &[u8]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let output = Command::new("openssl")
        .args(["dgst", "-sha256", "-keyform", "DER", "-verify"])
        .arg(file("key", key.spki()))
        .arg("-signature")
        .args([file("signature", signature), file("data", DATA)])
        .output()
        .expect("openssl is installed");
    output.status.success()
}

#[test]
fn keys_on_every_curve_sign_and_openssl_verifies() {
    let mut host = Host::ready(1);
    for (id, curve) in (1..).zip(Curve::ALL) {
        let request = host.generate(id, &ec_body(curve));
        assert_eq!(host.read(0xCE00 | u16::from(id)).data.to_vec(), request);
        let key = public(&request);
        let by_card = host.ok(0x80, 0x68, id, 0x73, DATA, Some(256));
        assert!(openssl_verifies(&key, &by_card), "{}", curve.name);
        let digest = hsmux_software::digest(Hash::Sha256, DATA);
        let by_host = host.ok(0x80, 0x68, id, 0x70, &digest, Some(256));
        assert!(openssl_verifies(&key, &by_host), "{}", curve.name);
        let other = host.ok(0x80, 0x68, id, 0x73, b"other", Some(256));
        assert!(!openssl_verifies(&key, &other), "{}", curve.name);
    }
}

#[test]
fn ecdsa_with_every_hash_of_the_card() {
    let mut host = Host::ready(1);
    let key = public(&host.generate(1, &ec_body(curve("P-256"))));
    for (algorithm, hash) in (0x71..).zip([
        Hash::Sha1,
        Hash::Sha224,
        Hash::Sha256,
        Hash::Sha384,
        Hash::Sha512,
    ]) {
        let signature = host.ok(0x80, 0x68, 1, algorithm, DATA, Some(256));
        let signature = ecdsa_fixed(&signature, 32).unwrap();
        let digest = hsmux_software::digest(hash, DATA);
        key.verify(&Mechanism::plain(ck::CKM_ECDSA), &digest, &signature)
            .unwrap();
    }
    assert_eq!(host.status(0x80, 0x68, 1, 0x76, DATA), 0x6A86);
    assert_eq!(host.status(0x80, 0x68, 1, 0x20, DATA), 0x6A86);
    assert_eq!(host.status(0x80, 0x68, 1, 0x70, &[]), 0x6700);
    assert_eq!(host.status(0x80, 0x68, 2, 0x70, DATA), 0x6A82);
    host.select();
    assert_eq!(host.status(0x80, 0x68, 1, 0x70, DATA), 0x6982);
}

#[test]
fn requests_are_signed_by_the_new_key_and_by_the_device() {
    let mut host = Host::ready(1);
    let device = Certificate::parse(&host.read(0x2F02).data).unwrap();
    for (id, body) in (1..).zip([
        ec_body(curve("brainpoolP256r1")),
        ec_body(curve("P-384")),
        rsa_body(1024),
    ]) {
        let bytes = host.generate(id, &body);
        let request = CvcRequest::parse(&bytes).unwrap();
        request.verify_inner().unwrap();
        request.verify_outer(&device).unwrap();
        assert!(bytes.windows(11).any(|field| field == b"\x42\x09UTCA00001"));
        assert!(
            bytes
                .windows(16)
                .any(|field| field == b"\x5F\x20\x0DVC00000100001")
        );
        let mut forged = bytes.clone();
        *forged.last_mut().unwrap() ^= 1;
        assert!(
            CvcRequest::parse(&forged)
                .unwrap()
                .verify_outer(&device)
                .is_err()
        );
    }
}

#[test]
fn rsa_signs_what_hosts_pad_and_pads_itself() {
    let mut host = Host::ready(1);
    let key = public(&host.generate(1, &rsa_body(1024)));
    let pkcs1 = Mechanism::plain(ck::CKM_RSA_PKCS);
    let info = digest_info(Hash::Sha256, DATA);
    let block = padded(Hash::Sha256, DATA, 128);
    for (algorithm, data) in [(0x20, &block[..]), (0x30, &info), (0x33, DATA)] {
        let signature = host.ok(0x80, 0x68, 1, algorithm, data, Some(512));
        key.verify(&pkcs1, &info, &signature).unwrap();
    }
    for (algorithm, hash) in [
        (0x31, Hash::Sha1),
        (0x32, Hash::Sha224),
        (0x34, Hash::Sha384),
        (0x35, Hash::Sha512),
    ] {
        let signature = host.ok(0x80, 0x68, 1, algorithm, DATA, Some(512));
        key.verify(&pkcs1, &digest_info(hash, DATA), &signature)
            .unwrap();
    }
    assert_eq!(host.status(0x80, 0x68, 1, 0x20, &block[1..]), 0x6700);
    assert_eq!(host.status(0x80, 0x68, 1, 0x20, &[0xFF; 128]), 0x6A80);
    assert_eq!(host.status(0x80, 0x68, 1, 0x30, &block), 0x6700);
    assert_eq!(host.status(0x80, 0x68, 1, 0x70, &info), 0x6A86);
}

#[test]
fn pss_of_a_digest_of_a_digest_info_and_of_data() {
    let mut host = Host::ready(1);
    let key = public(&host.generate(1, &rsa_body(1280)));
    let digest = hsmux_software::digest(Hash::Sha256, DATA);
    let mechanism = pss(ck::CKM_SHA256, ck::CKG_MGF1_SHA256, 32);
    // sc-hsm-embedded sends the first, OpenSC the second; both take the third.
    for (algorithm, data) in [
        (0x40, &digest[..]),
        (0x40, &digest_info(Hash::Sha256, DATA)),
        (0x43, DATA),
    ] {
        let signature = host.ok(0x80, 0x68, 1, algorithm, data, Some(512));
        key.verify(&mechanism, &digest, &signature).unwrap();
    }
    let signature = host.ok(0x80, 0x68, 1, 0x41, DATA, Some(512));
    let sha1 = hsmux_software::digest(Hash::Sha1, DATA);
    let mechanism = pss(ck::CKM_SHA_1, ck::CKG_MGF1_SHA1, 20);
    key.verify(&mechanism, &sha1, &signature).unwrap();
    assert_eq!(host.status(0x80, 0x68, 1, 0x40, &[1; 33]), 0x6A80);
}

#[test]
fn rsa_decrypts_and_leaves_the_padding() {
    let mut host = Host::ready(1);
    let key = public(&host.generate(1, &rsa_body(2048)));
    let secret = key
        .encrypt(&Mechanism::plain(ck::CKM_RSA_PKCS), b"secret")
        .unwrap();
    let block = host.ok(0x80, 0x62, 1, 0x21, &secret, Some(512));
    assert_eq!((block.len(), &block[..2]), (256, &[0, 2][..]));
    assert!(block.ends_with(b"\0secret"));
    assert_eq!(host.status(0x80, 0x62, 1, 0x80, &secret), 0x6A86);
    assert_eq!(host.status(0x80, 0x62, 1, 0x21, &secret[1..]), 0x6700);
}

#[test]
fn ecdh_answers_the_whole_point() {
    let mut host = Host::ready(1);
    for (id, name) in (1..).zip(["P-256", "brainpoolP384r1", "secp256k1"]) {
        let key = public(&host.generate(id, &ec_body(curve(name))));
        let agreement = key.agree().unwrap();
        let shared = host.ok(0x80, 0x62, id, 0x80, &agreement.public, Some(512));
        let len = agreement.secret.len();
        assert_eq!((shared.len(), shared[0]), (2 * len + 1, 4));
        assert_eq!(shared[1..=len], agreement.secret[..]);
        let mut off = agreement.public.clone();
        *off.last_mut().unwrap() ^= 1;
        assert_eq!(host.status(0x80, 0x62, id, 0x80, &off), 0x6A80);
        assert_eq!(host.status(0x80, 0x62, id, 0x80, &off[1..]), 0x6A80);
    }
}

/// The derived public point is the parent's plus a multiple of the generator: with 0 it is the same key.
#[test]
fn a_key_derived_from_another() {
    let mut host = Host::ready(1);
    let parent = public(&host.generate(1, &ec_body(curve("P-256"))));
    let child = |host: &mut Host, id: u8, addend: &[u8]| {
        host.ok(0x80, 0x76, 1, id, &[&[0x98], addend].concat(), None);
        public(&host.read(0xCE00 | u16::from(id)).data)
    };
    assert_eq!(child(&mut host, 2, &[0]).spki(), parent.spki());
    let key = child(&mut host, 3, &[0, 0, 7]);
    assert_ne!(key.spki(), parent.spki());
    assert_eq!(child(&mut host, 4, &[7]).spki(), key.spki());
    let signature = host.ok(0x80, 0x68, 3, 0x73, DATA, Some(256));
    assert!(openssl_verifies(&key, &signature));
    assert_eq!(host.status(0x80, 0x76, 1, 3, &[0x98, 1]), 0x6A89);
    assert_eq!(host.status(0x80, 0x76, 1, 5, &[0x97, 1]), 0x6A80);
}

#[test]
fn a_key_id_is_taken_once() {
    let mut host = Host::ready(1);
    let body = ec_body(curve("P-256"));
    host.generate(1, &body);
    assert_eq!(host.status(0, 0x46, 1, 0, &body), 0x6A89);
    assert_eq!(host.status(0, 0x46, 0, 0, &body), 0x6A86);
    assert_eq!(host.status(0, 0xE4, 2, 0, &[0xCC, 1]), 0x9000);
    assert_eq!(host.status(0x80, 0x68, 1, 0x70, DATA), 0x6A82);
    host.generate(1, &body);
}

#[test]
fn requests_for_keys_that_there_are_not() {
    let mut host = Host::ready(1);
    let mut other = ec_body(curve("P-256"));
    let generator = other
        .windows(32)
        .position(|window| window == &curve("P-256").generator[1..33]);
    other[generator.unwrap()] ^= 1;
    for body in [
        &rsa_body(1000)[..],
        &rsa_body(8192),
        &other,
        &[],
        &[0x7F, 0x49, 0],
        &[0x7F, 0x49, 0x84],
    ] {
        assert_eq!(host.status(0, 0x46, 1, 0, body), 0x6A80);
    }
    assert_eq!(host.enumerate(), [0xCC00]);
}

#[test]
fn conditions_come_with_the_request() {
    let mut host = Host::ready(1);
    let body = [
        ec_body(curve("P-256")),
        tlv(0x90, &[&[0, 0, 0, 1]]),
        tlv(0x91, &[&[0x70, 0x73]]),
    ];
    host.generate(1, &body.concat());
    assert_eq!(host.status(0x80, 0x68, 1, 0x71, DATA), 0x6985);
    assert_eq!(host.status(0x80, 0x68, 1, 0x73, DATA), 0x9000);
    assert_eq!(host.status(0x80, 0x68, 1, 0x73, DATA), 0x6984);
}

/// As sc-hsm-embedded does: no answer is requested, the request is read from its file.
#[test]
fn a_host_that_expects_no_answer_gets_none() {
    let mut host = Host::ready(1);
    let answer = host.answer((0, 0x46), (1, 0), &ec_body(curve("P-256")), None);
    assert!(answer.status.is_ok() && answer.data.is_empty());
    let id = [0xCE, 1];
    let file = host.answer((0, 0xB1), (id[0], id[1]), &[0x54, 2, 0, 0], ALL);
    CvcRequest::parse(&file.data)
        .unwrap()
        .verify_inner()
        .unwrap();
}
