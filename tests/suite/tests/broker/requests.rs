//! Bad input, each with its answer.

use hsmux_suite::{Rig, Setup};

use crate::connection::Connection;
use crate::rig::{Broker, METERED};

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

#[test]
fn bad_requests_are_answered_and_say_why() {
    let broker = Broker::start(1);
    for kind in ["aes256-gcm96", "aes256-cbc", "ecdsa-p256"] {
        let body = format!(r#"{{"type": "{kind}"}}"#);
        broker.good("POST", &format!("keys/app-{kind}"), &body);
    }
    let gcm = "encrypt/app-aes256-gcm96";
    for (path, body, status, words) in [
        (gcm, "{", 400, "failed to parse JSON"),
        (gcm, r#"{"plaintext": 7}"#, 400, "failed to parse JSON"),
        (gcm, r#"{"plaintext": "!"}"#, 400, "base64"),
        (gcm, "", 400, "missing plaintext"),
        (
            gcm,
            r#"{"plaintext": "", "key_version": 9}"#,
            400,
            "higher than the latest",
        ),
        (gcm, r#"{"plaintext": "", "nonce": "AAAA"}"#, 400, "nonce"),
        ("encrypt/app-none", TEXT, 404, "key not found"),
        ("encrypt/other", TEXT, 403, "permission denied"),
        ("encrypt/app-ecdsa-p256", TEXT, 400, "do not encrypt"),
        (
            "sign/app-aes256-gcm96",
            r#"{"input": ""}"#,
            400,
            "do not sign",
        ),
        (
            "hmac/app-ecdsa-p256",
            r#"{"input": ""}"#,
            400,
            "create a key of type hmac",
        ),
        (
            "sign/app-ecdsa-p256/md9",
            r#"{"input": ""}"#,
            400,
            "unsupported hash",
        ),
        (
            "sign/app-ecdsa-p256",
            r#"{"input": "AAAA", "prehashed": true}"#,
            400,
            "prehashed",
        ),
        (
            "decrypt/app-aes256-gcm96",
            r#"{"ciphertext": "x"}"#,
            400,
            "no prefix",
        ),
        (
            "decrypt/app-aes256-gcm96",
            r#"{"ciphertext": "vault:v7:AAAA"}"#,
            400,
            "too new",
        ),
        (
            "keys/app-new",
            r#"{"type": "aes-gcm"}"#,
            400,
            "aes256-gcm96",
        ),
        (
            "keys/app-new",
            r#"{"exportable": true}"#,
            400,
            "never leave",
        ),
        (
            "keys/app-aes256-cbc",
            r#"{"type": "hmac"}"#,
            400,
            "is there already",
        ),
        ("nothing", "", 404, "no handler"),
    ] {
        broker.refused("POST", path, body, status, words);
    }
    broker.refused("PATCH", gcm, "", 405, "unsupported operation");
    let long = format!(r#"{{"plaintext": "{}"}}"#, "A".repeat(65536));
    broker.refused("POST", gcm, &long, 413, "at most 65536 bytes");
    for token in ["", "hsmb.wrong"] {
        let (status, json) = broker.ask_as(token, "POST", gcm, TEXT);
        assert_eq!(
            (status, json["errors"][0].as_str()),
            (403, Some("permission denied"))
        );
    }
}

/// Clients of the dialect send it where they have nothing to say.
#[test]
fn null_is_an_empty_body() {
    let broker = Broker::start(1);
    broker.good("POST", "keys/app-one", "null");
    let shown = broker.good("GET", "keys/app-one", "");
    assert_eq!(shown["type"], "aes256-gcm96");
    broker.refused("POST", "encrypt/app-one", " null", 400, "missing plaintext");
    broker.refused("POST", "encrypt/app-one", "[]", 400, "JSON");
}

#[test]
fn an_input_that_no_operation_takes_is_too_long() {
    let broker = Broker::of(Rig::empty(Setup::Daemon, 1), METERED).known();
    for (name, kind) in [("gcm", "aes256-gcm96"), ("mac", "hmac")] {
        let body = format!(r#"{{"type": "{kind}"}}"#);
        broker.good("POST", &format!("keys/app-{name}"), &body);
    }
    let mut connection = Connection::tcp(&broker.url);
    let mut ask = |path: &str, field: &str, length: usize| {
        let body = format!(r#"{{"{field}": "{}"}}"#, "A".repeat(length / 3 * 4));
        let path = format!("/v1/transit/{path}");
        let answer = connection.ask("POST", &path, &broker.token, &body);
        answer.expect("an answer")
    };
    for (path, field) in [("encrypt/app-gcm", "plaintext"), ("hmac/app-mac", "input")] {
        for mib in [16, 17, 22] {
            let answer = ask(path, field, mib << 20);
            assert_eq!(answer.status, 413, "{path} {mib} MiB");
            assert!(answer.body.contains(field), "{}", answer.body);
        }
        assert_eq!(ask(path, field, 15 << 20).status, 200, "{path}");
    }
}

/// Cut off or altered, in any place: one and the same answer.
#[test]
fn what_cannot_be_read_is_answered_alike() {
    let broker = Broker::start(1);
    for kind in ["aes256-gcm96", "aes256-cbc"] {
        let (key, encrypt) = (format!("keys/app-{kind}"), format!("encrypt/app-{kind}"));
        broker.good("POST", &key, &format!(r#"{{"type": "{kind}"}}"#));
        let body = r#"{"plaintext": "c2VjcmV0", "associated_data": "YQ=="}"#;
        let sealed = broker.good("POST", &encrypt, body)["ciphertext"].clone();
        let sealed = sealed.as_str().expect("a ciphertext");
        let decrypt = |text: &str, aad: &str| {
            let body = format!(r#"{{"ciphertext": "{text}", "associated_data": "{aad}"}}"#);
            broker.ask("POST", &format!("decrypt/app-{kind}"), &body)
        };
        let (status, json) = decrypt(sealed, "YQ==");
        assert_eq!(
            (status, json["data"]["plaintext"].as_str()),
            (200, Some("c2VjcmV0"))
        );

        let prefix = "vault:v1:".len();
        let altered = |at: usize| {
            let mut text = sealed.as_bytes().to_vec();
            text[at] = if text[at] == b'A' { b'B' } else { b'A' };
            String::from_utf8(text).expect("text")
        };
        let bad = [
            (altered(prefix), "YQ=="),
            (altered(prefix + 18), "YQ=="),
            (sealed[..prefix + 24].to_owned(), "YQ=="),
            ("vault:v1:AAAA".to_owned(), "YQ=="),
            ("vault:v1:".to_owned(), "YQ=="),
            (sealed.to_owned(), "Yg=="),
            (sealed.to_owned(), ""),
        ];
        let answers: Vec<_> = bad.iter().map(|(text, aad)| decrypt(text, aad)).collect();
        for (answer, (text, aad)) in answers.iter().zip(&bad) {
            assert_eq!(answer.0, 400, "{kind} {text} {aad}: {answer:?}");
            assert_eq!(answer, &answers[0], "{kind} {text} {aad}");
        }
    }
}
