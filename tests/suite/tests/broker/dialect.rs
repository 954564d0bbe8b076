//! Requests that lack something, or ask for something impossible, and the dialect's errors for them.

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use serde_json::json;

use crate::held::MARK;
use crate::rig::Broker;

#[test]
fn what_is_missing_is_nothing_or_an_error_as_in_the_dialect() {
    let broker = Broker::start(1);
    for (name, kind) in [("app-ec", "ecdsa-p256"), ("app-mac", "hmac")] {
        let path = format!("keys/{name}");
        broker.good("POST", &path, &json!({"type": kind}).to_string());
    }
    // Without a batch nothing is signed; within one an item has to say what.
    let signed = broker.good("POST", "sign/app-ec", "");
    let verify = |input: Option<&str>| {
        let body = json!({"signature": signed["signature"], "input": input}).to_string();
        broker.good("POST", "verify/app-ec", &body)["valid"].clone()
    };
    assert_eq!(verify(None), true);
    assert_eq!(verify(Some("")), true);
    assert_eq!(verify(Some("AAAA")), false);
    let items = broker.good("POST", "sign/app-ec", r#"{"batch_input": [{}]}"#);
    assert_eq!(items["batch_results"][0]["error"], "missing input");
    broker.refused("POST", "hmac/app-mac", "", 400, "missing input");
    broker.refused("POST", "hash", "", 400, "missing input");
    broker.good("POST", "hash", r#"{"input": ""}"#);
    broker.refused("POST", "verify/app-ec", "", 400, "one of");
    for path in ["encrypt", "decrypt", "sign", "hmac"] {
        let body = r#"{"input": "", "plaintext": "", "ciphertext": "vault:v1:"}"#;
        broker.refused("POST", &format!("{path}/app-none"), body, 404, "not found");
    }
}

#[test]
fn versions_that_are_trimmed_stay_so() {
    let broker = Broker::start(1);
    broker.good("POST", "keys/app-key", "");
    let (config, trim) = ("keys/app-key/config", "keys/app-key/trim");
    let to = |version: u32| json!({"min_available_version": version}).to_string();
    broker.refused("POST", trim, &to(0), 400, "should be positive");
    broker.good("POST", "keys/app-key/rotate", "");
    let second = r#"{"min_decryption_version": 2, "min_encryption_version": 2}"#;
    broker.good("POST", config, second);
    broker.refused("POST", trim, &to(0), 400, "should be positive");
    broker.good("POST", trim, &to(2));
    for body in [
        r#"{"min_encryption_version": 0}"#,
        r#"{"min_encryption_version": 1, "min_decryption_version": 1}"#,
        r#"{"min_decryption_version": 1}"#,
    ] {
        broker.refused("POST", config, body, 400, "");
    }
    let shown = broker.good("GET", "keys/app-key", "");
    assert_eq!(shown["min_encryption_version"], 2);
}

#[test]
fn after_the_last_number_there_is_no_version() {
    let rig = Rig::empty(Setup::Daemon, 1);
    // A GCM key of 256 bits, and its version.
    let id = format!("{MARK}0200ffffffff0102030405060708");
    let line = format!("--keygen --key-type AES:32 --label app-last --id {id}");
    rig.softhsm.tool("hsm1").args(&line).ok();
    let broker = Broker::over(rig, "");
    until("it is taken over", PATIENCE, || {
        (broker.ask("GET", "keys/app-last", "").0 == 200).then_some(())
    });
    broker.refused("POST", "keys/app-last/rotate", "", 400, "there is none");
}

#[test]
fn an_older_version_makes_what_is_asked_of_it_while_it_may() {
    let broker = Broker::start(1);
    for (name, kind, path, input, made) in [
        (
            "app-gcm",
            "aes256-gcm96",
            "encrypt",
            "plaintext",
            "ciphertext",
        ),
        (
            "app-cbc",
            "aes256-cbc",
            "encrypt",
            "plaintext",
            "ciphertext",
        ),
        ("app-ec", "ecdsa-p256", "sign", "input", "signature"),
        ("app-mac", "hmac", "hmac", "input", "hmac"),
    ] {
        let key = format!("keys/{name}");
        broker.good("POST", &key, &json!({"type": kind}).to_string());
        for _ in 0..2 {
            broker.good("POST", &format!("{key}/rotate"), "");
        }
        let path = format!("{path}/{name}");
        let by = |version: u32| json!({input: "c2VjcmV0", "key_version": version}).to_string();
        let makes = |version: u32, number: u32| {
            let answer = broker.good("POST", &path, &by(version));
            let text = answer[made].as_str().expect("a text");
            assert!(text.starts_with(&format!("vault:v{number}:")), "{answer}");
            assert_eq!(answer["key_version"], number);
        };
        for (version, number) in [(1, 1), (2, 2), (3, 3), (0, 3)] {
            makes(version, number);
        }
        broker.refused("POST", &path, &by(4), 400, "higher than the latest");
        let config = r#"{"min_encryption_version": 2}"#;
        broker.good("POST", &format!("{key}/config"), config);
        broker.refused("POST", &path, &by(1), 400, "less than the minimum");
        makes(2, 2);
        makes(0, 3);
        // What could not be read any more is not made.
        let config = r#"{"min_encryption_version": 0, "min_decryption_version": 3}"#;
        broker.good("POST", &format!("{key}/config"), config);
        broker.refused("POST", &path, &by(2), 400, "minimum decryption key version");
        makes(3, 3);
        makes(0, 3);
    }
}

#[test]
fn data_keys_have_the_bits_that_are_asked_for() {
    let broker = Broker::start(1);
    broker.good("POST", "keys/app-key", "");
    for (bits, digits) in [(128, 24), (256, 44), (512, 88)] {
        let body = json!({"bits": bits}).to_string();
        for shown in [true, false] {
            let kind = if shown { "plaintext" } else { "wrapped" };
            let made = broker.good("POST", &format!("datakey/{kind}/app-key"), &body);
            let sealed = json!({"ciphertext": made["ciphertext"]}).to_string();
            let opened = broker.good("POST", "decrypt/app-key", &sealed);
            let key = opened["plaintext"].as_str().expect("a key");
            assert_eq!(key.len(), digits, "{bits} {kind}");
            assert_eq!(made["plaintext"].as_str(), shown.then_some(key));
        }
    }
    let body = r#"{"bits": 192}"#;
    broker.refused("POST", "datakey/wrapped/app-key", body, 400, "192");
}

#[test]
fn what_cannot_be_is_not_taken_for_something_else() {
    let broker = Broker::start(1);
    for (path, bytes) in [
        ("random/7", 12),
        ("random/all/7", 12),
        ("random/platform", 44),
    ] {
        let made = broker.good("POST", path, "");
        let text = made["random_bytes"].as_str().expect("bytes");
        assert_eq!(text.len(), bytes, "{path}");
    }
    for (path, words) in [
        ("random/5000000000", "5000000000"),
        ("random/abc", "abc"),
        ("random/platform/abc", "abc"),
        ("random/moon/16", "moon"),
        ("random/0", "from 1"),
    ] {
        broker.refused("POST", path, "", 400, words);
    }
    for (kind, size, good) in [
        ("hmac", 64, true),
        ("hmac", 0, true),
        ("hmac", 32, false),
        ("aes256-gcm96", 32, false),
    ] {
        let body = json!({"type": kind, "key_size": size}).to_string();
        if good {
            broker.good("POST", "keys/app-size", &body);
        } else {
            broker.refused("POST", "keys/app-other", &body, 400, "key_size");
        }
    }
}
