//! Keys that other tools have put on a token, named by URI, label and id.

use std::fmt::Write;
use std::fs;

use hsmux_suite::{Rig, Setup};
use serde_json::json;

use crate::restarts::lose_store;
use crate::rig::{Broker, OTHERS};
use crate::signing::{unsealed, verifies};

/// Keys of the rig (`rsa`, id 01; `ec`, id 02; `aes`, id 03) for `app`; only `cbc` may do what is dangerous.
const POLICIES: &str = r#"
[[policy]]
clients = ["token:app", "token:cbc"]
keys = ["label:*", "id:*", "pkcs11:*"]
allow = ["*"]

[[policy]]
clients = ["token:cbc"]
keys = ["label:aes", "id:03", "pkcs11:*", "label:rsa"]
allow = ["raw-cbc", "pkcs1-decrypt"]
"#;

/// As paths have them: by label, by id, by URI.
const AES: [&str; 3] = ["label:aes", "id:03", "pkcs11:object=aes%3Btype=secret-key"];
const RSA: [&str; 3] = ["label:rsa", "id:01", "pkcs11:id=%2501%3Btype=private"];
const EC: [&str; 3] = ["label:ec", "id:02", "pkcs11:object=ec"];

fn start() -> (Broker, String) {
    start_over(Rig::prepare(Setup::Daemon, 1))
}

fn start_over(rig: Rig) -> (Broker, String) {
    let broker = Broker::over(rig, POLICIES);
    let made = broker.rig.hsmux("token-auth create cbc").ok();
    let cbc = made.out.trim().to_owned();
    (broker, cbc)
}

fn base64(broker: &Broker, bytes: &[u8]) -> String {
    let done = broker.rig.run("base64").args("--wrap 0").input(bytes).ok();
    done.out
}

/// What openssl has made of a file, in base64.
fn openssl(broker: &Broker, line: &str, input: &[u8]) -> String {
    fs::write(broker.rig.path("input"), input).expect("the input");
    let line = format!("{line} -in input -out output");
    broker.rig.run("openssl").args(&line).ok();
    base64(
        broker,
        &fs::read(broker.rig.path("output")).expect("the output"),
    )
}

#[test]
fn raw_cbc_is_as_others_do_it_and_by_name_only() {
    raw_cbc(Rig::prepare(Setup::Daemon, 1));
}

#[test]
fn gcm_is_what_an_aes_key_does_where_nothing_is_said() {
    gcm(Rig::prepare(Setup::Daemon, 1));
}

fn raw_cbc(rig: Rig) {
    let (broker, cbc) = start_over(rig);
    let key = fs::read(broker.rig.keys.file("aes")).expect("the key");
    let mut hex = String::new();
    for byte in &key {
        write!(hex, "{byte:02x}").expect("a string");
    }
    let iv = [7_u8; 16];
    let line = format!("enc -aes-256-cbc -K {hex} -iv {}", "07".repeat(16));
    fs::write(broker.rig.path("input"), b"secret").expect("the input");
    broker
        .rig
        .run("openssl")
        .args(&line)
        .args("-in input -out output")
        .ok();
    let text = fs::read(broker.rig.path("output")).expect("the output");
    let foreign = format!("vault:v1:{}", base64(&broker, &[&iv[..], &text].concat()));
    for name in AES {
        let body = json!({"ciphertext": foreign, "mode": "cbc"}).to_string();
        let path = format!("decrypt/{name}");
        let (status, json) = broker.ask_as(&cbc, "POST", &path, &body);
        assert_eq!(
            (status, json["data"]["plaintext"].as_str()),
            (200, Some("c2VjcmV0")),
            "{name}: {json}"
        );
        broker.refused("POST", &path, &body, 403, "permission denied");

        let body = json!({"plaintext": "c2VjcmV0", "mode": "cbc"}).to_string();
        let path = format!("encrypt/{name}");
        broker.refused("POST", &path, &body, 403, "permission denied");
        let (status, json) = broker.ask_as(&cbc, "POST", &path, &body);
        let sealed = json["data"]["ciphertext"].as_str().expect("a ciphertext");
        assert_eq!(status, 200, "{json}");
        let body = json!({"ciphertext": sealed, "mode": "cbc"}).to_string();
        let (_, json) = broker.ask_as(&cbc, "POST", &format!("decrypt/{name}"), &body);
        assert_eq!(json["data"]["plaintext"], "c2VjcmV0", "{json}");
    }
    // Whatever is wrong with it, one and the same answer.
    for wrong in ["vault:v1:AAAA", "vault:v1:", &foreign[..foreign.len() - 4]] {
        let body = json!({"ciphertext": wrong, "mode": "cbc"}).to_string();
        let (status, json) = broker.ask_as(&cbc, "POST", "decrypt/id:03", &body);
        let words = json["errors"][0].as_str().expect("an error");
        assert_eq!(
            (status, words),
            (
                400,
                "invalid ciphertext: it was altered, or is not of this key"
            ),
            "{wrong}"
        );
    }
}

fn gcm(rig: Rig) {
    let (broker, _) = start_over(rig);
    for name in AES {
        let body = json!({"plaintext": "c2VjcmV0", "associated_data": "YQ=="}).to_string();
        let sealed = broker.good("POST", &format!("encrypt/{name}"), &body);
        let body =
            json!({"ciphertext": sealed["ciphertext"], "associated_data": "YQ=="}).to_string();
        // Every name is a name of the one key.
        let opened = broker.good("POST", "decrypt/label:aes", &body);
        assert_eq!(opened["plaintext"], "c2VjcmV0");
    }
}

/// How often it was used is nowhere else.
#[test]
fn gcm_only_deciphers_once_the_store_is_lost() {
    let (mut broker, _) = start();
    let clear = json!({"plaintext": "c2VjcmV0"}).to_string();
    let sealed = broker.good("POST", "encrypt/label:aes", &clear);
    lose_store(&mut broker);
    let opened = broker.good("POST", "decrypt/label:aes", &sealed.to_string());
    assert_eq!(opened["plaintext"], "c2VjcmV0");
    broker.refused(
        "POST",
        "encrypt/label:aes",
        &clear,
        400,
        "make a managed one",
    );
}

#[test]
fn rsa_and_curves_sign_and_decipher() {
    let (broker, cbc) = start();
    let public = broker.rig.keys.public("rsa");
    let oaep = openssl(
        &broker,
        &format!(
            "pkeyutl -encrypt -pubin -inkey {} -pkeyopt rsa_padding_mode:oaep",
            public.display()
        ),
        b"secret",
    );
    let pkcs1 = openssl(
        &broker,
        &format!("pkeyutl -encrypt -pubin -inkey {}", public.display()),
        b"secret",
    );
    for name in RSA {
        let sealed = format!("vault:v1:{oaep}");
        let body = json!({"ciphertext": sealed, "oaep_hash": "sha1"}).to_string();
        let opened = broker.good("POST", &format!("decrypt/{name}"), &body);
        assert_eq!(opened["plaintext"], "c2VjcmV0", "{name}");
    }
    let sealed = format!("vault:v1:{pkcs1}");
    let body = json!({"ciphertext": sealed, "padding_scheme": "pkcs1v15"}).to_string();
    broker.refused("POST", "decrypt/label:rsa", &body, 403, "permission denied");
    let (status, json) = broker.ask_as(&cbc, "POST", "decrypt/label:rsa", &body);
    assert_eq!(
        (status, json["data"]["plaintext"].as_str()),
        (200, Some("c2VjcmV0")),
        "{json}"
    );

    for (names, how) in [(RSA, "pkcs1v15"), (EC, "")] {
        for name in names {
            let body = json!({"input": "c2VjcmV0", "signature_algorithm": how}).to_string();
            let signed = broker.good("POST", &format!("sign/{name}"), &body);
            let body = json!({
                "input": "c2VjcmV0", "signature": signed["signature"], "signature_algorithm": how,
            });
            let valid = broker.good("POST", &format!("verify/{name}"), &body.to_string());
            assert_eq!(valid["valid"], true, "{name}");
            let label = if how.is_empty() { "ec" } else { "rsa" };
            unsealed(&broker, &signed["signature"]);
            verifies(&broker, &broker.rig.keys.public(label), "sha256", "");
        }
    }
}

#[test]
fn keys_of_others_are_shown_and_ask_for_certificates() {
    let (broker, _) = start();
    let openssl = |line: &str| broker.rig.run("openssl").args(line).ok();
    for (names, kind, word) in [(RSA, "rsa-2048", "rsa"), (EC, "ecdsa-p256", "ec")] {
        let file = broker.rig.keys.public(word);
        let line = format!("pkey -pubin -in {} -pubout", file.display());
        let public = openssl(&line).out;
        for name in names {
            let shown = broker.good("GET", &format!("keys/{name}"), "");
            assert_eq!(
                (&shown["type"], &shown["latest_version"]),
                (&json!(kind), &json!(1))
            );
            assert_eq!(shown["keys"]["1"]["public_key"], public, "{name}");
            assert_eq!(shown["supports_signing"], true, "{shown}");
            let made = broker.good("POST", &format!("keys/{name}/csr"), "");
            let csr = made["csr"].as_str().expect("a request");
            fs::write(broker.rig.path("key.csr"), csr).expect("a file");
            let asked = openssl("req -in key.csr -verify -noout -pubkey").out;
            assert_eq!(asked, public, "{name}");
        }
    }
    for name in AES {
        let shown = broker.good("GET", &format!("keys/{name}"), "");
        assert_eq!(shown["type"], "aes256-gcm96", "{shown}");
        broker.refused("POST", &format!("keys/{name}/csr"), "", 400, "do not sign");
    }
    broker.refused("GET", "keys/label:nothing", "", 404, "");
    let (status, _) = broker.ask_as("", "GET", "keys/label:rsa", "");
    assert_eq!(status, 403);
}

/// As long as P-256 both, and neither of them called so.
#[test]
fn keys_on_other_curves_sign_and_are_called_what_they_are() {
    const CURVES: [&str; 2] = ["secp256k1", "brainpoolP256r1"];
    let rig = Rig::empty(Setup::Daemon, 1);
    for (n, curve) in CURVES.iter().enumerate() {
        let line = format!("--keypairgen --key-type EC:{curve} --id 1{n} --label {curve}");
        rig.softhsm.tool("hsm1").args(&line).ok();
    }
    let broker = Broker::over(rig, OTHERS);
    for curve in CURVES {
        let shown = broker.good("GET", &format!("keys/label:{curve}"), "");
        assert_eq!(shown["type"], format!("ecdsa-{curve}"));
        assert_eq!(shown["keys"]["1"]["name"], curve);
        let public = broker.rig.path("public.pem");
        let pem = shown["keys"]["1"]["public_key"].as_str().expect("a key");
        fs::write(&public, pem).expect("a file");
        let path = format!("sign/label:{curve}");
        let signed = broker.good("POST", &path, r#"{"input": "c2VjcmV0"}"#);
        unsealed(&broker, &signed["signature"]);
        verifies(&broker, &public, "sha256", "");
        for (input, valid) in [("c2VjcmV0", true), ("AAAA", false)] {
            let body = json!({"input": input, "signature": signed["signature"]}).to_string();
            let found = broker.good("POST", &format!("verify/label:{curve}"), &body);
            assert_eq!(found["valid"], valid, "{curve}");
        }
    }
}

#[test]
fn a_name_that_means_no_key_or_several_is_answered_so() {
    let (broker, _) = start();
    let body = json!({"input": ""}).to_string();
    for (name, status, words) in [
        ("label:nothing", 404, "key not found"),
        ("id:99", 404, "key not found"),
        ("id:zz", 400, "id:zz"),
        ("pkcs11:type=private", 400, "names no key"),
        (
            "pkcs11:token=hsm1%3Bobject=ec",
            400,
            "the pool is one token",
        ),
        ("label:aes", 400, "do not sign"),
    ] {
        broker.refused("POST", &format!("sign/{name}"), &body, status, words);
    }
    // A managed key is not to be had by the label that its objects have, past its policy.
    broker.good("POST", "keys/app-key", "");
    broker.refused(
        "POST",
        "encrypt/label:app-key",
        r#"{"plaintext": ""}"#,
        404,
        "key not found",
    );
}
