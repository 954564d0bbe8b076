//! Batches: an answer for each item, also where a token is lost in the middle.

use std::thread;

use hsmux_suite::{PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::rig::Broker;

const ITEMS: usize = 400;
const IN_FLIGHT: &str = r#"hsmux_broker_operations_in_flight{key="app-gcm"}"#;

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

fn metric(broker: &Broker, name: &str) -> f64 {
    let page = broker.rig.run("curl").args("--silent --fail");
    let page = page.arg(format!("{}/metrics", broker.url)).ok().out;
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|number| number.trim().parse().ok())
        .unwrap_or(0.0)
}

fn start(members: usize) -> Broker {
    let mut broker = Broker::start(members);
    broker.rig.stop();
    let module = &mut broker.rig.config.module;
    *module = module.replacen("[broker]\n", "[broker]\nmetrics = true\n", 1);
    broker.start_again();
    broker.good("POST", "keys/app-gcm", "");
    broker
}

/// A worker that stands still has items of the batch, and ends with them.
fn while_a_worker_ends(broker: &Broker, worker: u32) -> (u16, Value) {
    signal(worker, Signal::STOP);
    thread::scope(|scope| {
        let batch = scope.spawn(|| broker.ask("POST", "encrypt/app-gcm", &batch()));
        until("the batch is under way", PATIENCE, || {
            (metric(broker, IN_FLIGHT) > 0.0 || batch.is_finished()).then_some(())
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

#[test]
fn a_batch_whose_only_token_is_lost_says_so_for_each_item_and_the_next_is_whole() {
    let broker = start(1);
    let (status, answer) = while_a_worker_ends(&broker, broker.rig.workers()[0]);
    match status {
        // It was back in time.
        200 => is_whole(&broker, &answer["data"]),
        503 => assert!(answer["errors"][0].is_string(), "{answer}"),
        500 => {
            for item in results(&answer["data"]) {
                let done = item["ciphertext"].is_string();
                assert_ne!(done, item["error"].is_string(), "{item}");
            }
        }
        _ => panic!("{status} {answer}"),
    }
    let whole = until("a whole batch", PATIENCE, || {
        let (status, answer) = broker.ask("POST", "encrypt/app-gcm", &batch());
        (status == 200).then_some(answer)
    });
    is_whole(&broker, &whole["data"]);
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
