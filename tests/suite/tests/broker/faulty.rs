//! A token whose module takes its time over changes, keeps what it should let go, and cannot read what it has
//! written: one request, or one key, is not everybody's affair.

use std::thread;

use hsmux_suite::{PATIENCE, Rig, SOFTHSM, Setup, StandIn, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::connection::Connection;
use crate::held::on_token;
use crate::rig::Broker;

/// All keys are for both clients.
const SECTION: &str = r#"
[broker]
listen = ["127.0.0.1:0"]
metrics = true
in_flight = 2

[[policy]]
clients = ["token:app", "token:other"]
keys = ["*"]
allow = ["*", "pkcs1-decrypt"]
"#;

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

/// A SoftHSM token behind the stand-in.
fn faulty() -> (Broker, StandIn) {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    let mut token = StandIn::new(&rig.path(""), "faulty", &["hsm1"]);
    token.set_module(&format!("forward = \"{SOFTHSM}\""));
    // What hangs is the test's doing.
    let patient = token
        .members()
        .map(|member| member.with("timeout = \"10m\""));
    rig.config.members = patient.collect();
    (Broker::of(rig, SECTION), token)
}

#[test]
fn while_a_key_is_made_for_minutes_other_changes_are_taken_over() {
    let (broker, mut token) = faulty();
    let other = broker.rig.hsmux("token-auth create other").ok().out;
    let status = |token: &str| broker.ask_as(token, "GET", "keys/app-none", "").0;
    until("the other is known", PATIENCE, || {
        (status(other.trim()) == 404).then_some(())
    });
    // The tokens have changed, which is to be looked at.
    broker.good("POST", "keys/app-first", "");
    token.set_all("hang_in_change = true");
    thread::scope(|scope| {
        let made = scope.spawn(|| broker.ask("POST", "keys/app-slow", ""));
        until("the key is being made", PATIENCE, || {
            let hangs = broker.rig.path("faulty.state/hsm1.hang");
            hangs.exists().then_some(())
        });
        // One look takes over both the first and the tokens' changes; the second needs another look.
        for (name, token) in [("other", other.trim()), ("app", &broker.token)] {
            broker.rig.hsmux(&format!("token-auth revoke {name}")).ok();
            until("the token is revoked", PATIENCE, || {
                (status(token) == 403).then_some(())
            });
        }
        assert!(!made.is_finished(), "the key is being made still");
        token.set_all("");
        let (status, answer) = made.join().expect("an answer");
        assert_eq!(status, 200, "{answer}");
    });
}

/// Has a worker killed in the middle of making a key: answers the CKA_ID by which that would be known, if it was made.
fn killed_while_making(broker: &Broker, token: &mut StandIn, path: &str) -> String {
    const INTENDED: &str = "
import sqlite3
store = sqlite3.connect('state/broker.sqlite')
print(store.execute('SELECT hex(id) FROM intents').fetchone()[0])";
    let worker = Pid::from_raw(broker.rig.workers()[0].cast_signed()).expect("a process");
    token.set_all("hang_in_change = true");
    let (status, answer) = thread::scope(|scope| {
        let made = scope.spawn(|| broker.ask("POST", path, ""));
        until("the key is being made", PATIENCE, || {
            (!token.hung("hsm1").is_empty()).then_some(())
        });
        kill_process(worker, Signal::KILL).expect("a worker to kill");
        made.join().expect("an answer")
    });
    token.set_all("");
    assert_eq!(status, 503, "{answer}");
    let python = broker.rig.run("/usr/bin/python3").arg("-c").arg(INTENDED);
    python.ok().out.trim().to_owned()
}

/// The token has made it, as it seems now.
fn was_made(broker: &Broker, id: &str) {
    let line = format!("--keygen --key-type AES:32 --label app-key --id {id}");
    broker.rig.softhsm.tool("hsm1").args(&line).ok();
}

/// Nobody knows whether the token has made it; if it has, nobody has used it.
#[test]
fn a_key_whose_worker_died_while_it_was_made_encrypts() {
    let (broker, mut token) = faulty();
    let id = killed_while_making(&broker, &mut token, "keys/app-key");
    was_made(&broker, &id);
    until("it is taken over", PATIENCE, || {
        (broker.ask("GET", "keys/app-key", "").0 == 200).then_some(())
    });
    broker.good("POST", "encrypt/app-key", TEXT);
}

#[test]
fn a_version_whose_worker_died_while_it_was_made_brings_no_deleted_key_back() {
    let (broker, mut token) = faulty();
    broker.good("POST", "keys/app-key", "");
    let id = killed_while_making(&broker, &mut token, "keys/app-key/rotate");
    let config = r#"{"deletion_allowed": true}"#;
    broker.good("POST", "keys/app-key/config", config);
    until("the key is deleted", PATIENCE, || {
        broker.ask("DELETE", "keys/app-key", "");
        (broker.ask("GET", "keys/app-key", "").0 == 404).then_some(())
    });
    was_made(&broker, &id);
    until("what was made goes, too", PATIENCE, || {
        (broker.rig.softhsm.objects() == 0).then_some(())
    });
    assert_eq!(broker.ask("GET", "keys/app-key", "").0, 404);
}

/// What goes on without its client costs that client a place still.
#[test]
fn a_client_that_goes_away_has_no_more_acts_at_once_for_it() {
    let (broker, mut token) = faulty();
    token.set_all("hang_in_change = true");
    let acts = ["app-one", "app-two"].map(|name| {
        let mut act = Connection::tcp(&broker.url);
        let path = format!("/v1/transit/keys/{name}");
        act.send("POST", &path, &broker.token, "").expect("send");
        act
    });
    let in_flight = |count: &str| {
        let page = broker.rig.run("curl").args("--silent --fail");
        let page = page.arg(format!("{}/metrics", broker.url)).ok().out;
        let mut lines = page.lines();
        let line = lines.find(|line| line.starts_with("hsmux_broker_requests_in_flight"));
        line.is_some_and(|line| line.ends_with(count))
    };
    until("both run", PATIENCE, || in_flight(" 2").then_some(()));
    drop(acts);
    until("their client has gone", PATIENCE, || {
        in_flight(" 0").then_some(())
    });
    broker.refused("GET", "keys/app-none", "", 429, "2 requests");
    token.set_all("");
    until("both are done", PATIENCE, || {
        let status = |name: &str| broker.ask("GET", &format!("keys/{name}"), "").0;
        (status("app-one") == 200 && status("app-two") == 200).then_some(())
    });
}

#[test]
fn a_key_that_cannot_be_destroyed_is_nobody_elses_affair() {
    let (broker, mut token) = faulty();
    let names = ["app-kept", "app-gone", "app-trimmed"];
    for name in names {
        broker.good("POST", &format!("keys/{name}"), "");
        let body = r#"{"deletion_allowed": true}"#;
        broker.good("POST", &format!("keys/{name}/config"), body);
    }
    broker.good("POST", "keys/app-trimmed/rotate", "");
    let body = r#"{"min_decryption_version": 2, "min_encryption_version": 2}"#;
    broker.good("POST", "keys/app-trimmed/config", body);
    token.set_all("lasting = \"app-kept\"");
    let (status, answer) = broker.ask("DELETE", "keys/app-kept", "");
    assert!(status >= 400, "{status} {answer}");
    broker.good("DELETE", "keys/app-gone", "");
    let body = r#"{"min_available_version": 2}"#;
    broker.good("POST", "keys/app-trimmed/trim", body);
    let held = |name: &str, number| (name.to_owned(), 0, number);
    let expected = [held("app-kept", 1), held("app-trimmed", 2)];
    assert_eq!(on_token(&broker, "hsm1"), expected);
    // It goes by itself when it can.
    token.set_all("");
    broker.good("POST", "keys/app-trimmed/rotate", "");
    until("it is gone", PATIENCE, || {
        let expected = [held("app-trimmed", 2), held("app-trimmed", 3)];
        (on_token(&broker, "hsm1") == expected).then_some(())
    });
}

#[test]
fn a_text_that_was_not_altered_is_not_said_to_be() {
    let (broker, mut token) = faulty();
    broker.good("POST", "keys/app-cbc", r#"{"type": "aes256-cbc"}"#);
    let sealed = broker.good("POST", "encrypt/app-cbc", TEXT);
    let good = json!({"ciphertext": sealed["ciphertext"]}).to_string();
    let bad = json!({"ciphertext": "vault:v1:AAAA"}).to_string();
    token.set_all("decrypt_error = 0x5");
    let (status, answer) = broker.ask("POST", "decrypt/app-cbc", &good);
    assert_eq!(status, 500, "{answer}");
    broker.refused("POST", "decrypt/app-cbc", &bad, 400, "it was altered");
}

/// A code of its vendor's says no more than another one.
#[test]
fn bad_padding_is_the_same_whatever_the_token_calls_it() {
    let (broker, mut token) = faulty();
    broker.good("POST", "keys/app-rsa", r#"{"type": "rsa-2048"}"#);
    let text = r#"{"plaintext": "c2VjcmV0", "oaep_hash": "sha1"}"#;
    let sealed = broker.good("POST", "encrypt/app-rsa", text)["ciphertext"].clone();
    let decrypt = |padding: &str| {
        let body = json!({"ciphertext": sealed, "padding_scheme": padding, "oaep_hash": "sha1"});
        broker.ask("POST", "decrypt/app-rsa", &body.to_string())
    };
    let (status, answer) = decrypt("oaep");
    assert_eq!(
        (status, &answer["data"]["plaintext"]),
        (200, &json!("c2VjcmV0"))
    );
    let made_up = decrypt("pkcs1v15").1["data"]["plaintext"].clone();
    // CKR_ENCRYPTED_DATA_INVALID, CKR_ARGUMENTS_BAD, CKR_FUNCTION_FAILED, and one that nobody else has.
    for code in ["0x40", "0x7", "0x6", "0x80000123"] {
        token.set_all(&format!("decrypt_error = {code}"));
        let (status, answer) = decrypt("oaep");
        let words = "invalid ciphertext: it was altered, or is not of this key";
        assert_eq!(
            (status, &answer["errors"][0]),
            (400, &json!(words)),
            "{code}"
        );
        let (status, answer) = decrypt("pkcs1v15");
        assert_eq!(
            (status, &answer["data"]["plaintext"]),
            (200, &made_up),
            "{code}"
        );
    }
}
