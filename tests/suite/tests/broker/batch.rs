//! Batches: an answer for each item, also where a token is lost in the middle.

use std::fs;
use std::thread;

use hsmux_suite::{PATIENCE, Rig, SOFTHSM, Setup, StandIn, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::rig::{Broker, METERED};
use crate::store::is_later;

const ITEMS: usize = 400;
const IN_FLIGHT: &str = r#"hsmux_broker_operations_in_flight{key="app-gcm"}"#;
const DONE: &str = r#"hsmux_broker_operations_total{key="app-gcm",operation="encrypt"}"#;

fn signal(worker: u32, signal: Signal) {
    let pid = i32::try_from(worker).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), signal).expect("signal a worker");
}

/// Numbered texts, each with its reference.
fn batch() -> String {
    let item = |n: usize| json!({"plaintext": base64(n), "reference": format!("item {n}")});
    let items: Vec<_> = (0..ITEMS).map(item).collect();
    json!({ "batch_input": items }).to_string()
}

/// Of the number in three digits.
fn base64(number: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = format!("{number:03}");
    let bits = text
        .bytes()
        .fold(0, |bits, byte| bits << 8 | usize::from(byte));
    let digit = |shift: usize| char::from(DIGITS[bits >> shift & 63]);
    [18, 12, 6, 0].map(digit).iter().collect()
}

fn results(answer: &Value) -> &Vec<Value> {
    let results = answer["batch_results"].as_array().expect("results");
    for (n, item) in results.iter().enumerate() {
        assert_eq!(item["reference"], format!("item {n}"), "{item}");
    }
    assert_eq!(results.len(), ITEMS);
    results
}

/// All of it, in its order, by what was enciphered.
fn is_whole(broker: &Broker, answer: &Value) {
    let sealed = |item: &Value| {
        assert!(item["error"].is_null(), "{item}");
        json!({"ciphertext": item["ciphertext"], "reference": item["reference"]})
    };
    let items: Vec<_> = results(answer).iter().map(sealed).collect();
    let body = json!({ "batch_input": items }).to_string();
    let opened = broker.good("POST", "decrypt/app-gcm", &body);
    for (n, item) in results(&opened).iter().enumerate() {
        assert_eq!(item["plaintext"], base64(n), "{item}");
    }
}

fn start(members: usize) -> Broker {
    let broker = Broker::of(Rig::empty(Setup::Daemon, members), METERED).known();
    broker.good("POST", "keys/app-gcm", "");
    broker
}

/// A worker that stands still has items of the batch, and ends with them.
fn while_a_worker_ends(broker: &Broker, worker: u32) -> (u16, Value) {
    signal(worker, Signal::STOP);
    thread::scope(|scope| {
        let batch = scope.spawn(|| broker.ask("POST", "encrypt/app-gcm", &batch()));
        until("the batch is under way", PATIENCE, || {
            (broker.metric(IN_FLIGHT) > 0.0 || batch.is_finished()).then_some(())
        });
        signal(worker, Signal::KILL);
        batch.join().expect("an answer")
    })
}

#[test]
fn a_batch_completes_where_one_of_two_tokens_is_lost() {
    let broker = start(2);
    let (status, answer) = while_a_worker_ends(&broker, broker.rig.workers()[0]);
    assert_eq!(status, 200, "{answer}");
    is_whole(&broker, &answer["data"]);
    broker.rig.wait_for_members(2);
}

/// SoftHSM's only token, which takes its time.
fn slow() -> Broker {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    let mut token = StandIn::new(&rig.path(""), "slow", &["hsm1"]);
    token.set_module(&format!("forward = \"{SOFTHSM}\""));
    token.set_all("service_time_us = 20_000");
    // Items wait for a token that may be back, as many at once as are under way. Nobody else logs in
    // meanwhile: a PIN shown to a token that is just being lost is rightly not shown again.
    rig.config.pool = "deadline = \"3s\"\nwatch = false".into();
    rig.config.members = token.members().collect();
    let broker = Broker::of(rig, METERED).known();
    broker.good("POST", "keys/app-gcm", "");
    broker
}

/// Its folder is gone and its worker ends; or it is back.
fn lose(broker: &Broker) {
    fs::rename(broker.rig.path("tokens"), broker.rig.path("away")).expect("take it away");
    signal(broker.rig.workers()[0], Signal::KILL);
}

fn find_again(broker: &Broker) {
    fs::rename(broker.rig.path("away"), broker.rig.path("tokens")).expect("put it back");
    broker.rig.wait_for_members(1);
}

#[test]
fn of_a_batch_whose_only_token_is_lost_the_answers_stay_and_the_others_are_errors() {
    let broker = slow();
    for (code, expected) in [(Value::Null, 500), (json!(207), 207)] {
        let mut body: Value = serde_json::from_str(&batch()).expect("a batch");
        body["partial_failure_response_code"] = code;
        let before = broker.metric(DONE);
        let (status, answer) = thread::scope(|scope| {
            let batch = scope.spawn(|| broker.ask("POST", "encrypt/app-gcm", &body.to_string()));
            until("some of it is done", PATIENCE, || {
                (broker.metric(DONE) > before).then_some(())
            });
            lose(&broker);
            batch.join().expect("an answer")
        });
        assert_eq!(status, expected, "{answer}");
        find_again(&broker);
        let (mut done, mut failed) = (Vec::new(), 0);
        for (n, item) in results(&answer["data"]).iter().enumerate() {
            match item["error"].as_str() {
                None => done.push((n, item["ciphertext"].clone())),
                Some(error) => {
                    assert!(item["ciphertext"].is_null() && !error.is_empty(), "{item}");
                    failed += 1;
                }
            }
        }
        assert!(!done.is_empty() && failed > 0, "{answer}");
        for (n, sealed) in done {
            let body = json!({ "ciphertext": sealed }).to_string();
            let opened = broker.good("POST", "decrypt/app-gcm", &body);
            assert_eq!(opened["plaintext"], base64(n));
        }
    }
}

#[test]
fn a_batch_of_which_nothing_is_done_for_its_only_token_is_lost_is_503_and_the_next_is_whole() {
    let broker = slow();
    lose(&broker);
    broker.rig.wait_for_members(0);
    is_later(&broker, "encrypt/app-gcm", &batch(), "errors");
    find_again(&broker);
    is_whole(&broker, &broker.good("POST", "encrypt/app-gcm", &batch()));
}

#[test]
fn each_item_has_its_answer_and_the_client_chooses_the_status() {
    let broker = Broker::start(1);
    broker.good("POST", "keys/app-gcm", "");
    broker.good("POST", "keys/app-ec", r#"{"type": "ecdsa-p256"}"#);
    let good = json!({"plaintext": "c2VjcmV0", "reference": "good"});
    let bad = json!({"plaintext": "!", "reference": "bad"});
    let ask = |path: &str, items: &[&Value], code: Value| {
        let body = json!({"batch_input": items, "partial_failure_response_code": code});
        broker.ask("POST", path, &body.to_string())
    };
    let some = [&good, &bad, &good];
    for (code, status) in [(Value::Null, 400), (json!(207), 207), (json!("200"), 200)] {
        let (found, answer) = ask("encrypt/app-gcm", &some, code);
        assert_eq!(found, status, "{answer}");
        let items = answer["data"]["batch_results"].as_array().expect("results");
        let references: Vec<_> = items.iter().map(|item| &item["reference"]).collect();
        assert_eq!(references, ["good", "bad", "good"]);
        assert!(
            items[0]["ciphertext"].is_string() && items[2]["error"].is_null(),
            "{answer}"
        );
        let error = items[1]["error"].as_str().expect("an error");
        assert!(
            error.contains("base64") && items[1]["ciphertext"].is_null(),
            "{answer}"
        );
    }
    // Where nothing went well there is nothing partial.
    assert_eq!(ask("encrypt/app-gcm", &[&bad, &bad], json!(200)).0, 400);
    assert_eq!(ask("encrypt/app-gcm", &[], json!(200)).0, 400);

    let sealed = broker.good("POST", "encrypt/app-gcm", &good.to_string());
    let sealed = json!({"ciphertext": sealed["ciphertext"], "reference": "sealed"});
    let altered = json!({"ciphertext": "vault:v1:AAAA", "reference": "altered"});
    let signed = json!({"input": "c2VjcmV0", "reference": "signed"});
    let made = |path: &str, field: &str, other: &str| {
        let made = broker.good("POST", path, &signed.to_string());
        let good = json!({"input": "c2VjcmV0", field: made[field], "reference": "good"});
        let bad = json!({"input": "c2VjcmV0", field: other, "reference": "bad"});
        (good, bad)
    };
    broker.good("POST", "keys/app-mac", r#"{"type": "hmac"}"#);
    let (signature, no_signature) = made("sign/app-ec", "signature", "vault:v1:!");
    let (mac, no_mac) = made("hmac/app-mac", "hmac", "vault:v7:AAAA");
    // Of those that only say it, whatever the client asks for.
    for (path, items, done, status) in [
        ("decrypt/app-gcm", [&sealed, &altered], "plaintext", 202),
        ("rewrap/app-gcm", [&sealed, &altered], "ciphertext", 200),
        ("sign/app-ec", [&signed, &bad], "signature", 200),
        ("verify/app-ec", [&signature, &no_signature], "valid", 200),
        ("hmac/app-mac", [&signed, &bad], "hmac", 200),
        ("verify/app-mac", [&mac, &no_mac], "valid", 200),
    ] {
        let (found, answer) = ask(path, &items, json!(202));
        assert_eq!(found, status, "{path}: {answer}");
        let results = &answer["data"]["batch_results"];
        for (item, result) in items.iter().zip(results.as_array().expect("results")) {
            assert_eq!(result["reference"], item["reference"], "{path}: {answer}");
        }
        let good = &results[0][done];
        assert!(good.is_string() || *good == true, "{path}: {answer}");
        assert!(results[1]["error"].is_string(), "{path}: {answer}");
        let (found, _) = ask(path, &[items[1]], Value::Null);
        assert_eq!(found, if status == 200 { 200 } else { 400 }, "{path}");
    }
    // What is well formed and wrong is an answer, not an error.
    let wrong = json!({"input": "AAAA", "hmac": mac["hmac"], "reference": "wrong"});
    let (_, answer) = ask("verify/app-mac", &[&wrong], Value::Null);
    assert_eq!(
        answer["data"]["batch_results"][0]["valid"], false,
        "{answer}"
    );
}
