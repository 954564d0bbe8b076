//! The broker's lines on the audit trail.

use std::fs;

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use serde_json::{Value, json};

use crate::rig::Broker;

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

pub fn lines(broker: &Broker) -> Vec<Value> {
    broker.rig.trail()
}

/// Waits for a line that says all this, in the order of who, what, with which key, and how it ended.
fn wait_for(broker: &Broker, expected: [&str; 4]) {
    until(&format!("a line of {expected:?}"), PATIENCE, || {
        let says = |line: &Value| {
            let call = if line["call"].is_null() {
                "act"
            } else {
                "call"
            };
            let found = ["actor", call, "key", "outcome"].map(|field| line[field].as_str());
            found == expected.map(Some)
        };
        let found = lines(broker).into_iter().find(says)?;
        assert!(
            found["peer"].is_string() && found["request"].is_string(),
            "{found}"
        );
        Some(())
    });
}

#[test]
fn whatever_clients_do_and_try_is_on_the_trail() {
    let broker = Broker::start_with(1, "[audit]\nkeys = true\n");
    broker.good("POST", "keys/app-gcm", "");
    broker.good("POST", "encrypt/app-gcm", TEXT);
    broker.good("POST", "random/16", "");
    broker.good("POST", "hash", r#"{"input": "c2VjcmV0"}"#);
    let bad = r#"{"ciphertext": "vault:v9:AAAA"}"#;
    broker.refused("POST", "decrypt/app-gcm", bad, 400, "too new");
    broker.refused("POST", "sign/other", r#"{"input": ""}"#, 403, "denied");
    let (status, _) = broker.ask_as("hsmb.wrong", "POST", "decrypt/app-gcm", bad);
    assert_eq!(status, 403);
    for expected in [
        ["token:app", "broker-key-create", "app-gcm", "done"],
        ["token:app", "encrypt", "app-gcm", "done"],
        ["token:app", "random", "", "done"],
        ["token:app", "hash", "", "done"],
        [
            "token:app",
            "decrypt",
            "app-gcm",
            "invalid ciphertext: version is too new",
        ],
        ["token:app", "sign", "other", "permission denied"],
        ["anonymous", "decrypt", "app-gcm", "permission denied"],
    ] {
        wait_for(&broker, expected);
    }
    broker.rig.hsmux("audit verify").ok();
}

/// One line of the trail for a use of a key, by its operation and outcome.
fn used(broker: &Broker, call: &str, outcome: &str) -> Value {
    until(&format!("{call}: {outcome}"), PATIENCE, || {
        let of = |line: &Value| line["call"] == call && line["outcome"] == outcome;
        lines(broker).into_iter().rfind(of)
    })
}

#[test]
fn strangers_neither_fill_the_trail_nor_write_on_it_what_they_like() {
    let mut broker = Broker::start_with(1, "[audit]\nkeys = true\n");
    let long = "x".repeat(3000);
    let names = [
        // A key's name of the dialect, and what people have in their URIs.
        "pkcs11:object=web%3Btype=private%3Fpin-value=s3cretpin",
        "pkcs11:object=web%3Bpin-value=s3cretpin",
        "label:web%3Fpin-value=s3cretpin",
        &long,
        "app-gcm",
    ];
    for (count, name) in names.iter().enumerate() {
        let path = format!("encrypt/{name}");
        assert_eq!(broker.ask_as("", "POST", &path, TEXT).0, 403);
        // Who is known has a line for each of the first hundred.
        let path = path.replace("encrypt", "sign").replace("app-", "other-");
        assert_eq!(broker.ask("POST", &path, TEXT).0, 403);
        until("its line", PATIENCE, || {
            let by_app = |line: &&Value| line["actor"] == "token:app";
            (lines(&broker).iter().filter(by_app).count() == count + 1).then_some(())
        });
    }
    broker.rig.stop();
    let all = lines(&broker);
    let keys = all.iter().filter(|line| line["actor"] == "token:app");
    let keys = keys.map(|line| line["key"].as_str().expect("a key").to_owned());
    let keys: Vec<_> = keys.collect();
    assert!(
        keys[0].starts_with("name:") && keys[3].starts_with("name:"),
        "{keys:?}"
    );
    assert_eq!((&*keys[2], &*keys[4]), ("label:web", "other-gcm"));
    let of_strangers = all.iter().filter(|line| line["actor"] == "anonymous");
    let of_strangers: Vec<_> = of_strangers.collect();
    assert_eq!(of_strangers.len(), 2, "{of_strangers:?}");
    assert_eq!(of_strangers[0]["call"], "encrypt");
    assert_eq!(of_strangers[1]["act"], "broker-denied");
    assert_eq!(of_strangers[1]["count"], names.len() - 1);
    assert_eq!(of_strangers[1]["peer"], "127.0.0.1");
    let trail = fs::read_to_string(broker.rig.path("state/audit.log")).expect("the trail");
    assert!(
        !trail.contains("s3cret") && !trail.contains("xxxxxxxx"),
        "{trail}"
    );
    broker.rig.hsmux("audit verify").ok();
}

#[test]
fn a_use_says_which_version_it_was_and_of_other_programs_keys_which_object() {
    let policies = r#"
[[policy]]
clients = ["token:app"]
keys = ["label:*", "id:*"]
allow = ["*", "raw-cbc"]

[audit]
keys = true
"#;
    let broker = Broker::over(Rig::prepare(Setup::Daemon, 1), policies);
    broker.good("POST", "keys/app-gcm", "");
    let sealed = broker.good("POST", "encrypt/app-gcm", TEXT);
    broker.good("POST", "keys/app-gcm/rotate", "");
    let sealed = json!({"ciphertext": sealed["ciphertext"]}).to_string();
    broker.good("POST", "decrypt/app-gcm", &sealed);
    broker.good("POST", "encrypt/app-gcm", TEXT);
    assert_eq!(used(&broker, "decrypt", "done")["version"], 1);
    until("the second version", PATIENCE, || {
        (used(&broker, "encrypt", "done")["version"] == 2).then_some(())
    });

    let listed = broker.rig.hsmux("key list --json").ok().out;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let mut rows = listed.as_array().expect("keys").iter();
    let aes = rows.find(|row| row["label"] == "aes").expect("a key");
    let text = json!({"plaintext": "c2VjcmV0", "mode": "cbc"}).to_string();
    for name in ["label:aes", "id:03"] {
        let sealed = broker.good("POST", &format!("encrypt/{name}"), &text);
        let line = until("its line", PATIENCE, || {
            let line = used(&broker, "encrypt", "done");
            line["mechanism"].is_string().then_some(line)
        });
        assert_eq!(line["mechanism"], "CKM_AES_CBC_PAD");
        assert_eq!(
            (&line["label"], &line["version"]),
            (&json!("aes"), &Value::Null)
        );
        let key = line["key"].as_str().expect("a key");
        assert!(
            aes.to_string().contains(key) && key.len() == 16,
            "{aes} {line}"
        );
        let body = json!({"ciphertext": sealed["ciphertext"], "mode": "cbc"}).to_string();
        broker.good("POST", &format!("decrypt/{name}"), &body);
        until("its line", PATIENCE, || {
            let line = used(&broker, "decrypt", "done");
            (line["key"] == key && line["mechanism"] == "CKM_AES_CBC_PAD").then_some(())
        });
    }
    broker.rig.hsmux("audit verify").ok();
}

/// The outcomes of an act about this.
fn outcomes(broker: &Broker, act: &str, field: &str, about: &str) -> Vec<Value> {
    let mut lines = lines(broker);
    lines.retain(|line| line["act"] == act && line[field].to_string().contains(about));
    for line in &lines {
        assert!(line["uid"].is_u64() && line["pid"].is_u64(), "{line}");
    }
    lines.iter().map(|line| line["outcome"].clone()).collect()
}

#[test]
fn what_commands_do_to_tokens_and_the_store_is_on_the_trail_with_and_without_a_daemon() {
    let mut broker = Broker::start(1);
    for (round, name) in ["first", "second"].into_iter().enumerate() {
        let create = format!("token-auth create {name} --json");
        let made = broker.rig.hsmux(&create).ok().out;
        let made: Value = serde_json::from_str(&made).expect("JSON");
        let id = made["id"].as_str().expect("an id");
        let file = format!("backup-{name}.sqlite");
        broker.rig.hsmux(&format!("broker --backup {file}")).ok();
        broker
            .rig
            .hsmux(&format!("token-auth revoke {name}"))
            .ok()
            .says("1 revoked");
        for (act, field, about) in [
            ("token-auth-create", "id", id),
            ("token-auth-create", "name", name),
            ("token-auth-revoke", "ids", id),
            ("token-auth-revoke", "which", name),
            ("broker-backup", "file", &file),
        ] {
            let outcomes = outcomes(&broker, act, field, about);
            assert_eq!(outcomes, ["begun", "done"], "{act} {about}");
        }
        broker.rig.hsmux("audit verify").ok();
        if round == 0 {
            broker.rig.stop();
        }
    }
    // What looks at them is no act; a token that cannot be recorded is not made.
    broker.rig.hsmux("token-auth list").ok();
    assert!(outcomes(&broker, "token-auth-list", "name", "").is_empty());
    fs::remove_file(broker.rig.path("state/audit.log")).expect("the trail");
    fs::create_dir(broker.rig.path("state/audit.log")).expect("no trail");
    broker.rig.hsmux("token-auth create third").fails();
    let listed = broker.rig.hsmux("token-auth list").ok().out;
    assert!(!listed.contains("third"), "{listed}");
}
