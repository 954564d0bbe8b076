//! What is done to keys over the real program: trim, csr, set-certificate, and what is refused by name.

use std::fs;

use hsmux_suite::{PATIENCE, until};
use serde_json::{Value, json};

use crate::held::{ids_on_token, on_token};
use crate::rig::Broker;

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

fn text<'a>(answer: &'a Value, field: &str) -> &'a str {
    answer[field].as_str().expect("a text")
}

#[test]
fn trimmed_versions_are_gone_from_the_tokens() {
    let broker = Broker::start(2);
    broker.good("POST", "keys/app-cbc", r#"{"type": "aes256-cbc"}"#);
    let first = broker.good("POST", "encrypt/app-cbc", TEXT);
    for _ in 0..2 {
        broker.good("POST", "keys/app-cbc/rotate", "");
    }
    let third = broker.good("POST", "encrypt/app-cbc", TEXT);
    let trim = r#"{"min_available_version": 3}"#;
    let path = "keys/app-cbc/trim";
    broker.refused("POST", path, "", 400, "missing min_available_version");
    broker.refused(
        "POST",
        path,
        trim,
        400,
        "minimum encryption version is not set",
    );
    let config = r#"{"min_encryption_version": 3, "min_decryption_version": 2}"#;
    broker.good("POST", "keys/app-cbc/config", config);
    broker.refused("POST", path, trim, 400, "greater than minimum decryption");
    broker.good(
        "POST",
        "keys/app-cbc/config",
        r#"{"min_decryption_version": 3}"#,
    );
    let shown = broker.good("POST", path, trim);
    assert_eq!(shown["min_available_version"], 3);
    let versions = shown["keys"].as_object().expect("versions");
    assert_eq!(versions.keys().collect::<Vec<_>>(), ["3"]);
    for label in ["hsm1", "hsm2"] {
        let name = "app-cbc".to_owned();
        let left = [(name.clone(), 0, 3), (name, 1, 3)];
        assert_eq!(on_token(&broker, label), left, "{label}");
    }
    let body = json!({"ciphertext": first["ciphertext"]}).to_string();
    broker.refused("POST", "decrypt/app-cbc", &body, 400, "too old");
    let body = json!({"ciphertext": third["ciphertext"]}).to_string();
    let opened = broker.good("POST", "decrypt/app-cbc", &body);
    assert_eq!(opened["plaintext"], "c2VjcmV0");
    let back = r#"{"min_available_version": 2}"#;
    broker.refused("POST", path, back, 400, "cannot be decremented");
}

/// Uses of what is not there are answered with 404, and so is a look at it.
#[test]
fn what_another_program_has_deleted_is_not_listed() {
    let broker = Broker::start(2);
    for kind in ["aes256-gcm96", "aes256-cbc"] {
        let name = format!("app-{kind}");
        let path = format!("keys/{name}");
        broker.good("POST", &path, &json!({"type": kind}).to_string());
        broker.good("POST", &format!("{path}/rotate"), "");
    }
    broker.good("POST", "keys/app-stays", "");
    let delete = |name: &str, version: u8| {
        for label in ["hsm1", "hsm2"] {
            for (_, id) in ids_on_token(&broker, label)
                .into_iter()
                .filter(|(of, id)| of == name && id.contains(&format!("0000000{version}")))
            {
                let tool = broker.rig.softhsm.tool(label);
                let line = format!("--delete-object --type secrkey --id {id}");
                tool.args(&line).ok();
            }
        }
    };
    let numbers = |path: &str| {
        let key = broker.ask("GET", path, "").1;
        let versions = key["data"]["keys"].as_object().cloned();
        versions.map_or(Vec::new(), |versions| versions.keys().cloned().collect())
    };
    for kind in ["aes256-gcm96", "aes256-cbc"] {
        let name = format!("app-{kind}");
        let path = format!("keys/{name}");
        let sealed = broker.good("POST", &format!("encrypt/{name}"), TEXT);
        delete(&name, 1);
        until("the first version is gone", PATIENCE, || {
            (numbers(&path) == ["2"]).then_some(())
        });
        delete(&name, 2);
        until("the key is gone", PATIENCE, || {
            (broker.ask("GET", &path, "").0 == 404).then_some(())
        });
        let listed = broker.good("LIST", "keys", "")["keys"].to_string();
        assert!(
            listed.contains("app-stays") && !listed.contains(&name),
            "{listed}"
        );
        let body = json!({"ciphertext": sealed["ciphertext"]}).to_string();
        broker.refused("POST", &format!("encrypt/{name}"), TEXT, 404, "");
        broker.refused("POST", &format!("decrypt/{name}"), &body, 404, "");
        let other = json!({"type": "hmac"}).to_string();
        broker.refused("POST", &path, &other, 400, "is gone from the tokens");

        // Made again, it has a number that no ciphertext of before has.
        let made = broker.good("POST", &path, &json!({"type": kind}).to_string());
        assert_eq!(made["latest_version"], 3);
        assert_eq!(numbers(&path), ["3"]);
        broker.refused("POST", &format!("decrypt/{name}"), &body, 404, "");
        let sealed = broker.good("POST", &format!("encrypt/{name}"), TEXT);
        assert!(text(&sealed, "ciphertext").starts_with("vault:v3:"));
    }
}

/// The pool has nothing to delete it from, and no member that serves has it.
#[test]
fn a_key_that_only_an_absent_member_has_goes_when_that_is_back() {
    let broker = Broker::start(3);
    broker.good("POST", "keys/app-key", "");
    let allow = r#"{"deletion_allowed": true}"#;
    broker.good("POST", "keys/app-key/config", allow);
    for label in ["hsm2", "hsm3"] {
        for (_, id) in ids_on_token(&broker, label) {
            let tool = broker.rig.softhsm.tool(label);
            let line = format!("--delete-object --type secrkey --id {id}");
            tool.args(&line).ok();
        }
    }
    broker.rig.hsmux("token park hsm1 --force").ok();
    broker.refused("DELETE", "keys/app-key", "", 503, "token that is away");
    assert_eq!(broker.ask("GET", "keys/app-key", "").0, 404);
    assert_eq!(on_token(&broker, "hsm1").len(), 1);
    broker.rig.hsmux("token resume hsm1").ok();
    until("it has gone", PATIENCE, || {
        on_token(&broker, "hsm1").is_empty().then_some(())
    });
    assert_eq!(broker.ask("GET", "keys/app-key", "").0, 404);
}

/// The broker still knows the public half.
#[test]
fn what_another_program_has_deleted_verifies_nothing() {
    let broker = Broker::start(1);
    for (name, kind) in [("app-ec", "ecdsa-p256"), ("app-rsa", "rsa-2048")] {
        broker.good(
            "POST",
            &format!("keys/{name}"),
            &json!({"type": kind}).to_string(),
        );
        let input = r#"{"input": "c2VjcmV0"}"#;
        let signed = broker.good("POST", &format!("sign/{name}"), input);
        let body = json!({"input": "c2VjcmV0", "signature": signed["signature"]}).to_string();
        let path = format!("verify/{name}");
        assert_eq!(broker.good("POST", &path, &body)["valid"], true);
        for (_, id) in ids_on_token(&broker, "hsm1") {
            for half in ["privkey", "pubkey"] {
                let tool = broker.rig.softhsm.tool("hsm1");
                tool.args(&format!("--delete-object --type {half} --id {id}"))
                    .ok();
            }
        }
        until("it is gone", PATIENCE, || {
            (broker.ask("POST", &path, &body).0 == 404).then_some(())
        });
        broker.refused("POST", &format!("sign/{name}"), input, 404, "not found");
    }
}

#[test]
fn a_key_asks_for_its_certificate_and_keeps_it() {
    let broker = Broker::start(1);
    let openssl = |line: &str| broker.rig.run("openssl").args(line).ok();
    openssl("genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out ca.key");
    openssl("req -x509 -new -key ca.key -subj /CN=ca -days 2 -out ca.pem");
    openssl("req -new -key ca.key -subj /CN=orders.test -out template.csr");
    let template = fs::read_to_string(broker.rig.path("template.csr")).expect("a request");
    for kind in ["ecdsa-p256", "rsa-2048"] {
        let key = format!("keys/app-{kind}");
        broker.good("POST", &key, &json!({"type": kind}).to_string());
        let body = json!({"csr": template}).to_string();
        let made = broker.good("POST", &format!("{key}/csr"), &body);
        fs::write(broker.rig.path("key.csr"), text(&made, "csr")).expect("write");
        openssl("req -in key.csr -verify -noout -subject").says("orders.test");
        openssl("x509 -req -in key.csr -CA ca.pem -CAkey ca.key -days 1 -out key.pem");
        let own = fs::read_to_string(broker.rig.path("key.pem")).expect("a certificate");
        let ca = fs::read_to_string(broker.rig.path("ca.pem")).expect("a certificate");

        let path = format!("{key}/set-certificate");
        let body = json!({"certificate_chain": ca}).to_string();
        broker.refused(
            "POST",
            &path,
            &body,
            400,
            "is not of this version of the key",
        );
        broker.refused("POST", &path, "", 400, "no certificate in it");
        let chain = format!("{own}{ca}");
        let body = json!({"certificate_chain": chain}).to_string();
        broker.good("POST", &path, &body);
        let shown = broker.good("GET", &key, "");
        assert_eq!(shown["keys"]["1"]["certificate_chain"], chain);
    }
    broker.good("POST", "keys/app-gcm", "");
    broker.refused("POST", "keys/app-gcm/csr", "", 400, "do not sign");
}

#[test]
fn what_tokens_do_not_do_is_refused_by_name() {
    let broker = Broker::start(1);
    let (on, off) = (json!(true), json!(false));
    for (field, wanted, not, words) in [
        ("derived", &on, &off, "make a key for each context"),
        (
            "convergent_encryption",
            &on,
            &off,
            "new and random each time",
        ),
        ("exportable", &on, &off, "never leave the tokens"),
        (
            "allow_plaintext_backup",
            &on,
            &off,
            "never leave the tokens",
        ),
        (
            "auto_rotate_period",
            &json!("720h"),
            &json!("0s"),
            "a timer of your own",
        ),
        (
            "auto_rotate_period",
            &json!(86400),
            &json!(0),
            "a timer of your own",
        ),
    ] {
        let body = json!({field: wanted}).to_string();
        let refused = |path: &str| broker.refused("POST", path, &body, 400, words);
        refused("keys/app-new");
        broker.refused("GET", "keys/app-new", "", 404, "");
        broker.good("POST", "keys/app-new", &json!({field: not}).to_string());
        refused("keys/app-new/config");
        broker.good(
            "POST",
            "keys/app-new/config",
            r#"{"deletion_allowed": true}"#,
        );
        broker.good("DELETE", "keys/app-new", "");
    }
}
