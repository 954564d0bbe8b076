//! The broker's lines on the audit trail, and what a full disk means over HTTP.

use std::fs;
use std::os::unix::fs::symlink;

use hsmux_suite::{PATIENCE, until};
use serde_json::Value;

use crate::rig::Broker;

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

fn lines(broker: &Broker) -> Vec<Value> {
    let trail = broker.rig.hsmux("audit --json --lines 10000").ok();
    let lines = trail.out.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
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

/// How many lines there are of an act about this.
fn acts(broker: &Broker, act: &str, field: &str, about: &str) -> usize {
    let of = |line: &&Value| line["act"] == act && line[field].to_string().contains(about);
    let lines = lines(broker);
    let found: Vec<_> = lines.iter().filter(of).collect();
    for line in &found {
        let done = line["outcome"] == "done" && line["uid"].is_u64() && line["pid"].is_u64();
        assert!(done, "{line}");
    }
    found.len()
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
            assert_eq!(acts(&broker, act, field, about), 1, "{act} {about}");
        }
        broker.rig.hsmux("audit verify").ok();
        if round == 0 {
            broker.rig.stop();
        }
    }
    // What looks at them is no act; a token that cannot be recorded is not made.
    broker.rig.hsmux("token-auth list").ok();
    assert_eq!(acts(&broker, "token-auth-list", "name", ""), 0);
    fs::remove_file(broker.rig.path("state/audit.log")).expect("the trail");
    fs::create_dir(broker.rig.path("state/audit.log")).expect("no trail");
    broker.rig.hsmux("token-auth create third").fails();
    let listed = broker.rig.hsmux("token-auth list").ok().out;
    assert!(!listed.contains("third"), "{listed}");
}

#[test]
fn a_full_disk_stops_key_use_over_http_until_there_is_room() {
    let broker = Broker::start_with(1, "[audit]\nkeys = true\n");
    broker.good("POST", "keys/app-gcm", "");
    let trail = broker.rig.path("state/audit.log");
    fs::rename(&trail, broker.rig.path("state/audit.log.1")).expect("the trail");
    symlink("/dev/full", &trail).expect("a full disk");
    broker.rig.hsmux("reload").fails().says("No space left");

    let batch = format!(r#"{{"batch_input": [{TEXT}, {TEXT}]}}"#);
    for (path, body) in [
        ("encrypt/app-gcm", TEXT),
        ("encrypt/app-gcm", &batch),
        ("random/16", ""),
        ("hash", r#"{"input": "c2VjcmV0"}"#),
        ("keys/app-gcm/rotate", ""),
    ] {
        let done = broker.curl(&broker.token, "POST", path, body, "--include");
        let head = done.to_lowercase();
        assert!(head.starts_with("http/1.1 503"), "{path}: {done}");
        assert!(head.contains("\nretry-after: "), "{path}: {done}");
        assert!(done.contains("audit trail"), "{path}: {done}");
    }
    let key = broker.good("GET", "keys/app-gcm", "");
    assert_eq!(key["latest_version"], 1, "it was not rotated");

    fs::remove_file(&trail).expect("room");
    until("keys are used again", PATIENCE, || {
        let (status, _) = broker.ask("POST", "encrypt/app-gcm", TEXT);
        (status == 200).then_some(())
    });
    until("the trail is whole", PATIENCE, || {
        let refused = |line: &Value| line["gap"]["refused"].as_u64() >= Some(1);
        lines(&broker).iter().any(refused).then_some(())
    });
    broker.rig.hsmux("audit verify").ok();
}
