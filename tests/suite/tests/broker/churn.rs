//! Keys that other programs add and remove while the broker runs, and workers that become slow by it.

use std::time::{Duration, Instant};

use hsmux_suite::{PATIENCE, Rig, SOFTHSM, Setup, StandIn, until};

use crate::foreign::A_SECOND;
use crate::rig::{Broker, OTHERS};

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

/// Another program makes a key.
fn add(broker: &Broker, label: &str) {
    let line = format!("--keygen --key-type AES:32 --label {label} --id 77");
    broker.rig.softhsm.tool("hsm1").args(&line).ok();
}

/// Another program deletes a key.
fn delete(broker: &Broker, label: &str) {
    let line = format!("--delete-object --type secrkey --label {label}");
    broker.rig.softhsm.tool("hsm1").args(&line).ok();
}

fn status_of(broker: &Broker, label: &str) -> u16 {
    broker
        .ask("POST", &format!("encrypt/label:{label}"), TEXT)
        .0
}

#[track_caller]
fn answers(broker: &Broker, label: &str, wanted: u16) {
    let what = format!("{label} answers {wanted}");
    until(&what, PATIENCE, || {
        (status_of(broker, label) == wanted).then_some(())
    });
}

fn listed(broker: &Broker) -> String {
    broker.rig.pkcs11_tool("--list-objects").ok().out
}

fn replaced(broker: &Broker) -> u64 {
    let status = broker.rig.status();
    status["members"][0]["replaced"].as_u64().expect("a number")
}

#[test]
fn keys_of_other_programs_come_and_go_without_a_restart() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.config.members[0].more.push_str("workers = 2");
    let broker = Broker::over(rig, OTHERS);
    let workers = broker.rig.workers();
    answers(&broker, "aes", 200);
    assert_eq!(status_of(&broker, "first"), 404);
    add(&broker, "first");
    answers(&broker, "first", 200);
    until("the module shows it", PATIENCE, || {
        listed(&broker).contains("first").then_some(())
    });
    delete(&broker, "first");
    answers(&broker, "first", 404);
    until("the module does not", PATIENCE, || {
        (!listed(&broker).contains("first")).then_some(())
    });

    // Ours right after one of others, before anybody has looked, and the other way round.
    add(&broker, "second");
    broker.good("POST", "keys/app-own", "");
    answers(&broker, "second", 200);
    broker.good("POST", "keys/app-own/rotate", "");
    add(&broker, "third");
    answers(&broker, "third", 200);
    delete(&broker, "second");
    broker.good("POST", "encrypt/app-own", TEXT);
    answers(&broker, "second", 404);
    answers(&broker, "third", 200);
    answers(&broker, "aes", 200);
    assert_eq!(broker.rig.workers(), workers);
}

/// As docs/broker.md says, of each; one may fall into a moment in which the machine stands still.
#[test]
fn a_key_of_another_program_is_known_within_a_second() {
    let broker = Broker::over(Rig::prepare(Setup::Daemon, 1), OTHERS);
    answers(&broker, "aes", 200);
    let took = |round: usize, wanted: u16| {
        let begun = Instant::now();
        answers(&broker, &format!("round{round}"), wanted);
        begun.elapsed()
    };
    let (mut come, mut gone) = (Vec::new(), Vec::new());
    for round in 0..5 {
        add(&broker, &format!("round{round}"));
        come.push(took(round, 200));
        delete(&broker, &format!("round{round}"));
        gone.push(took(round, 404));
    }
    let late = |times: &[Duration]| times.iter().filter(|time| **time >= A_SECOND).count();
    let few = late(&come) + late(&gone) <= 1;
    assert!(few, "come {come:?}, gone {gone:?}");
}

/// A SoftHSM as it was before 2.4.0, which a change by another process makes slow.
fn old_softhsm() -> Broker {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    let mut old = StandIn::new(&rig.path(""), "old", &["hsm1"]);
    old.set_module(&format!("forward = \"{SOFTHSM}\""));
    old.set_all("churn = { base_us = 20_000, each_ns = 0 }");
    rig.config.members = old.members().collect();
    Broker::over(rig, OTHERS)
}

/// Other programs change the keys of a slow one again and again; what has served it before each.
fn changes_again_and_again(broker: &Broker) {
    answers(broker, "aes", 200);
    assert_eq!(replaced(broker), 0);
    // Enough to know how fast it is.
    let batch: Vec<_> = (0..50).map(|_| TEXT).collect();
    let batch = format!(r#"{{"batch_input": [{}]}}"#, batch.join(","));
    let encipher = || broker.good("POST", "encrypt/label:aes", &batch);
    for round in 1..=3 {
        for _ in 0..20 {
            encipher();
        }
        let other = format!("other{round}");
        add(broker, &other);
        until("a fresh one serves", PATIENCE, || {
            encipher();
            (replaced(broker) >= round).then_some(())
        });
        answers(broker, &other, 200);
    }
    let log = broker.rig.daemon.as_ref().expect("a daemon").log();
    assert!(log.contains("a fresh worker serves in its place"), "{log}");
}

#[test]
fn a_worker_that_a_foreign_change_makes_slow_is_replaced_and_no_request_fails() {
    let broker = old_softhsm();
    let worker = broker.rig.workers();
    changes_again_and_again(&broker);
    assert_ne!(broker.rig.workers(), worker);
    assert_eq!(broker.rig.workers().len(), 1);
}
