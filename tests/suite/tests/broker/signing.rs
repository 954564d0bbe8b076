//! Signatures by managed keys of every size, against openssl.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use boring::bn::BigNum;
use boring::ec::EcKey;
use boring::ecdsa::EcdsaSig;
use serde_json::{Value, json};

use crate::rig::Broker;

const TYPES: [&str; 5] = [
    "ecdsa-p384",
    "ecdsa-p521",
    "rsa-2048",
    "rsa-3072",
    "rsa-4096",
];

/// Makes a key of this type, and keeps its public half in `TYPE.pem`.
pub fn make(broker: &Broker, kind: &str) {
    let key = broker.good(
        "POST",
        &format!("keys/app-{kind}"),
        &json!({"type": kind}).to_string(),
    );
    let public = key["keys"]["1"]["public_key"].as_str().expect("a key");
    fs::write(self::public(broker, kind), public).expect("a file");
}

/// That file.
pub fn public(broker: &Broker, kind: &str) -> PathBuf {
    broker.rig.path(&format!("{kind}.pem"))
}

/// The bytes of a signature or ciphertext in a file.
pub fn unsealed(broker: &Broker, text: &Value) {
    let text = text.as_str().expect("a text");
    let bytes = text.strip_prefix("vault:v1:").expect("the first version");
    let shell = broker.rig.run("sh").args("-c").arg("base64 -d > bytes");
    shell.input(bytes).ok();
}

/// Whether openssl takes the signature in `bytes` of the text "secret".
pub fn verifies(broker: &Broker, public: &Path, hash: &str, options: &str) {
    fs::write(broker.rig.path("text"), "secret").expect("a file");
    let public = public.display();
    let line = format!("dgst -{hash} {options} -verify {public} -signature bytes text");
    broker
        .rig
        .run("openssl")
        .args(&line)
        .ok()
        .says("Verified OK");
}

#[test]
fn keys_of_every_size_sign_as_openssl_verifies() {
    let broker = Broker::start(1);
    for kind in TYPES {
        make(&broker, kind);
        let hash = if kind.ends_with("p521") {
            "sha2-512"
        } else {
            "sha2-384"
        };
        let options = if kind.starts_with("rsa") {
            "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:auto"
        } else {
            ""
        };
        let path = format!("sign/app-{kind}/{hash}");
        let signed = broker.good("POST", &path, r#"{"input": "c2VjcmV0"}"#);
        unsealed(&broker, &signed["signature"]);
        let hash = hash.replace("sha2-", "sha");
        verifies(&broker, &public(&broker, kind), &hash, options);
        let path = path.replace("sign", "verify");
        for (input, valid) in [("c2VjcmV0", true), ("AAAA", false)] {
            let body = json!({"input": input, "signature": signed["signature"]}).to_string();
            assert_eq!(broker.good("POST", &path, &body)["valid"], valid, "{kind}");
        }
    }
}

/// JWS is r and s side by side, each as long as the curve, in base64url without padding (RFC 7518, section 3.4); ASN.1
/// is a SEQUENCE of both, which is also what comes where nothing is said.
#[test]
fn each_marshaling_is_read_by_others() {
    let broker = Broker::start(1);
    let digest = boring::sha::sha256(b"secret");
    for (kind, len) in [("ecdsa-p256", 64), ("ecdsa-p384", 96), ("ecdsa-p521", 132)] {
        make(&broker, kind);
        let pem = fs::read(public(&broker, kind)).expect("a file");
        let key = EcKey::public_key_from_pem(&pem).expect("a key");
        let sign = |how: Option<&str>| {
            let body = json!({"input": "c2VjcmV0", "marshaling_algorithm": how}).to_string();
            let signed = broker.good("POST", &format!("sign/app-{kind}/sha2-256"), &body);
            let text = signed["signature"].as_str().expect("a signature");
            let text = text.strip_prefix("vault:v1:").expect("the first version");
            text.to_owned()
        };
        // The two alphabets, and numbers that begin with zeros, differ in some signatures only.
        for _ in 0..8 {
            let raw = URL_SAFE_NO_PAD
                .decode(sign(Some("jws")))
                .expect("base64url");
            assert_eq!(raw.len(), len, "{kind}");
            let (r, s) = raw.split_at(len / 2);
            let [r, s] = [r, s].map(|number| BigNum::from_slice(number).expect("a number"));
            let signature = EcdsaSig::from_private_components(r, s).expect("r and s");
            assert!(
                signature.verify(&digest, &key).expect("a verdict"),
                "{kind}"
            );
            for how in [Some("asn1"), None] {
                let der = STANDARD.decode(sign(how)).expect("base64");
                let signature = EcdsaSig::from_der(&der).expect("a SEQUENCE of r and s");
                assert!(
                    signature.verify(&digest, &key).expect("a verdict"),
                    "{kind}"
                );
            }
        }
    }
    let body = r#"{"input": "c2VjcmV0", "marshaling_algorithm": "raw"}"#;
    broker.refused("POST", "sign/app-ecdsa-p256", body, 400, "asn1 and jws");
}

/// PKCS#1 v1.5 around the data as it is: not even what says which hash it is of.
#[test]
fn without_a_hash_the_data_itself_is_signed() {
    let broker = Broker::start(1);
    make(&broker, "rsa-2048");
    fs::write(broker.rig.path("text"), "secret").expect("a file");
    for (path, said) in [("app-rsa-2048", Some("none")), ("app-rsa-2048/none", None)] {
        let mut body = json!({
            "input": "c2VjcmV0", "hash_algorithm": said,
            "prehashed": true, "signature_algorithm": "pkcs1v15",
        });
        let sign = format!("sign/{path}");
        let signed = broker.good("POST", &sign, &body.to_string());
        unsealed(&broker, &signed["signature"]);
        let line = "pkeyutl -verify -pubin -inkey rsa-2048.pem -sigfile bytes -in text";
        broker.rig.run("openssl").args(line).ok();
        body["signature"] = signed["signature"].clone();
        for (input, valid) in [("c2VjcmV0", true), ("AAAA", false)] {
            body["input"] = input.into();
            let found = broker.good("POST", &format!("verify/{path}"), &body.to_string());
            assert_eq!(found["valid"], valid, "{path}");
        }
        for (field, other) in [
            ("prehashed", json!(false)),
            ("signature_algorithm", json!("pss")),
        ] {
            let mut body = body.clone();
            body[field] = other;
            broker.refused("POST", &sign, &body.to_string(), 400, "hash_algorithm");
        }
    }
}

/// Whoever had that signature could tell bad padding from good.
#[test]
fn what_hides_bad_padding_is_signed_for_nobody() {
    let broker = Broker::start(1);
    make(&broker, "rsa-2048");
    let ask = |text: &str| {
        let body = json!({
            "input": STANDARD.encode(text), "hash_algorithm": "none",
            "prehashed": true, "signature_algorithm": "pkcs1v15",
        });
        body.to_string()
    };
    let own = "hsmux: texts in place of bad PKCS#1 v1.5 padding";
    let path = "sign/app-rsa-2048";
    broker.refused("POST", path, &ask(own), 400, "the broker's own");
    broker.good("POST", path, &ask(&own[1..]));
}

/// However the request says which hash it is.
#[test]
fn as_much_salt_as_the_hash_is_long() {
    let broker = Broker::start(1);
    make(&broker, "rsa-2048");
    for (path, more, hash, salt) in [
        ("sign/app-rsa-2048", json!({}), "sha256", 32),
        ("sign/app-rsa-2048/sha2-512", json!({}), "sha512", 64),
        (
            "sign/app-rsa-2048",
            json!({"algorithm": "sha2-512"}),
            "sha512",
            64,
        ),
        (
            "sign/app-rsa-2048",
            json!({"hash_algorithm": "sha2-384"}),
            "sha384",
            48,
        ),
    ] {
        let mut body = more.clone();
        body["input"] = json!("c2VjcmV0");
        body["salt_length"] = json!("hash");
        let signed = broker.good("POST", path, &body.to_string());
        unsealed(&broker, &signed["signature"]);
        let options = format!("-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:{salt}");
        verifies(&broker, &public(&broker, "rsa-2048"), hash, &options);
        body["signature"] = signed["signature"].clone();
        let path = path.replace("sign", "verify");
        assert_eq!(broker.good("POST", &path, &body.to_string())["valid"], true);
        body["salt_length"] = json!(salt - 1);
        assert_eq!(
            broker.good("POST", &path, &body.to_string())["valid"],
            false
        );
    }
}

#[test]
fn a_signature_says_itself_how_much_salt_it_has() {
    let broker = Broker::start(1);
    make(&broker, "rsa-2048");
    for salt in [0, 1, 17, 32, 222] {
        let body = json!({"input": "c2VjcmV0", "salt_length": salt}).to_string();
        let signed = broker.good("POST", "sign/app-rsa-2048", &body);
        for (input, valid) in [("c2VjcmV0", true), ("AAAA", false)] {
            let body = json!({"input": input, "signature": signed["signature"]}).to_string();
            let found = broker.good("POST", "verify/app-rsa-2048", &body);
            assert_eq!(found["valid"], valid, "{salt} {input}");
        }
        unsealed(&broker, &signed["signature"]);
        let options = format!("-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:{salt}");
        verifies(&broker, &public(&broker, "rsa-2048"), "sha256", &options);
    }
    let body = json!({"input": "c2VjcmV0", "salt_length": 223}).to_string();
    broker.refused("POST", "sign/app-rsa-2048", &body, 400, "room for 222");
}
