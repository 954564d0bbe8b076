//! RSA keys of a real SoftHSM over HTTP with each hash, and the errors for hashes that it lacks.

use std::fs;

use serde_json::{Value, json};

use crate::rig::Broker;
use crate::signing::{make, public, unsealed, verifies};

const KIND: &str = "rsa-2048";

/// The dialect's words, openssl's, and whether SoftHSM has the hash in PSS; PKCS#1 v1.5 takes what was hashed here.
const HASHES: [(&str, &str, bool); 9] = [
    ("sha1", "sha1", true),
    ("sha2-224", "sha224", true),
    ("sha2-256", "sha256", true),
    ("sha2-384", "sha384", true),
    ("sha2-512", "sha512", true),
    ("sha3-224", "sha3-224", false),
    ("sha3-256", "sha3-256", false),
    ("sha3-384", "sha3-384", false),
    ("sha3-512", "sha3-512", false),
];

/// The digest of the text "secret", by openssl, in base64.
fn digest(broker: &Broker, hash: &str) -> String {
    let line = format!("printf secret | openssl dgst -{hash} -binary | base64 --wrap 0");
    broker.rig.run("sh").arg("-c").arg(line).ok().out
}

#[test]
fn what_is_hashed_already_is_signed_as_openssl_verifies_with_each_hash() {
    let broker = Broker::start(1);
    make(&broker, KIND);
    let key = public(&broker, KIND);
    for (hash, openssl, has_pss) in HASHES {
        let (hashed, other) = (digest(&broker, openssl), digest(&broker, "sm3"));
        for (scheme, options) in [
            ("pkcs1v15", ""),
            (
                "pss",
                "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:auto",
            ),
        ] {
            let mut body =
                json!({"input": hashed, "prehashed": true, "signature_algorithm": scheme});
            let path = format!("sign/app-{KIND}/{hash}");
            if scheme == "pss" && !has_pss {
                let words = format!("do not have CKM_RSA_PKCS_PSS with {hash}; there is ");
                broker.refused("POST", &path, &body.to_string(), 400, &words);
                let offered = "CKM_SHA256_RSA_PKCS_PSS";
                broker.refused("POST", &path, &body.to_string(), 400, offered);
                continue;
            }
            let signed = broker.good("POST", &path, &body.to_string());
            unsealed(&broker, &signed["signature"]);
            verifies(&broker, &key, openssl, options);
            body["signature"] = signed["signature"].clone();
            let path = path.replace("sign", "verify");
            let mut is_valid = |input: &str, prehashed: bool| {
                body["input"] = input.into();
                body["prehashed"] = prehashed.into();
                broker.good("POST", &path, &body.to_string())["valid"] == true
            };
            assert!(is_valid(&hashed, true), "{hash} {scheme}");
            assert!(is_valid("c2VjcmV0", false), "{hash} {scheme}");
            assert!(!is_valid(&hashed, false), "{hash} {scheme}");
            if openssl == "sha256" {
                assert!(!is_valid(&other, true), "as long, and another");
            }
        }
    }
}

/// The dialect's default is SHA-256, as in OpenBao and Vault; nobody falls back to another unasked.
#[test]
fn a_hash_that_the_token_lacks_for_oaep_is_refused_with_that_which_it_has() {
    let broker = Broker::start(1);
    make(&broker, KIND);
    let (encrypt, decrypt) = (format!("encrypt/app-{KIND}"), format!("decrypt/app-{KIND}"));
    let with = |hash: Option<&str>, mut body: Value| {
        if let Some(hash) = hash {
            body["oaep_hash"] = hash.into();
        }
        body.to_string()
    };
    // As a client has sealed it with the public half.
    fs::write(broker.rig.path("text"), "secret").expect("a file");
    let sealed = |openssl: &str| {
        let options = "-pkeyopt rsa_padding_mode:oaep -pkeyopt rsa_oaep_md:";
        let line = format!("pkeyutl -encrypt -pubin -inkey {KIND}.pem {options}{openssl}");
        let openssl = broker.rig.run("openssl").args(&line);
        openssl.args("-in text -out bytes").ok();
        let base64 = broker.rig.run("base64").args("--wrap 0 bytes").ok().out;
        json!({"ciphertext": format!("vault:v1:{base64}")})
    };
    let plaintext = || json!({"plaintext": "c2VjcmV0"});
    // Before anybody has used the hash that it has, and after.
    let unreadable = || {
        let body = with(Some("sha1"), json!({"ciphertext": "vault:v1:AAAA"}));
        broker.refused("POST", &decrypt, &body, 400, "invalid ciphertext");
    };
    unreadable();
    let lacking = HASHES.iter().filter(|(hash, ..)| *hash != "sha1");
    let lacking = lacking.map(|(hash, openssl, _)| (Some(*hash), *hash, *openssl));
    for (said, hash, openssl) in [(None, "sha2-256", "sha256")].into_iter().chain(lacking) {
        let words = format!("do not have CKM_RSA_PKCS_OAEP with {hash}; there is oaep_hash sha1");
        let body = with(said, plaintext());
        broker.refused("POST", &encrypt, &body, 400, &words);
        let body = with(said, sealed(openssl));
        broker.refused("POST", &decrypt, &body, 400, &words);
    }
    // As it is told to.
    let made = broker.good("POST", &encrypt, &with(Some("sha1"), plaintext()));
    let own = json!({"ciphertext": made["ciphertext"]});
    for text in [own, sealed("sha1")] {
        let opened = broker.good("POST", &decrypt, &with(Some("sha1"), text));
        assert_eq!(opened["plaintext"], "c2VjcmV0");
    }
    unreadable();
}
