//! Keys on Edwards curves: SoftHSM lets none of them out, and hsmux cannot compute on Ed448. A pool of several has one
//! copy of each, and says so.

use hsmux_suite::{Finished, Rig, Setup, source};
use serde_json::{Value, json};

#[test]
fn bare() {
    sign(Setup::Bare, 1);
}

#[test]
fn a_pool_of_one() {
    sign(Setup::Daemon, 1);
}

#[test]
fn a_pool_of_three() {
    sign(Setup::Daemon, 3);
}

fn sign(setup: Setup, members: usize) {
    let rig = crate::serving_in_turns(setup, members);
    let run = crate::run(&rig, "edwards.py");
    says_all(&run);
    if setup == Setup::Bare {
        return;
    }
    // Tokens would sign it as plain. A program must learn of it before it has hashed a document.
    for name in ["ed25519", "ed448"] {
        for variant in ["prehash 0 context 9", "prehash 1 context 0"] {
            run.says(&format!("{name} {variant}: C_SignInit says 0x71"));
        }
    }
}

fn says_all(run: &Finished) {
    for name in ["ed25519", "ed448"] {
        for what in ["session key signs", "token key signs", "found and used"] {
            run.says(&format!("{name} {what}"));
        }
    }
}

#[test]
fn copies_that_are_missing_are_told() {
    let rig = crate::serving_in_turns(Setup::Daemon, 3);
    says_all(&crate::run(&rig, "edwards.py"));
    let rows = rig.hsmux("key list --json").ok().out;
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    let row = |label: &str| {
        let of_label = |row: &&Value| row["label"] == label && row["class"] == "private key";
        let found: Vec<_> = rows.iter().filter(of_label).collect();
        assert_eq!(found.len(), 1, "{rows:?}");
        found[0]
    };
    let copied = row("ed25519");
    assert_eq!(copied["replicas"][0]["state"], "serving");
    assert_eq!(copied["missing"].as_array().unwrap().len(), 2, "{copied}");
    // Only its own token can name it, so no other lacks it.
    let unchecked = row("ed448");
    assert_eq!(unchecked["replicas"][0]["state"], "unproved");
    assert_eq!(unchecked["missing"], json!([]));
    let doctor = rig.hsmux("doctor").finish().out;
    assert!(doctor.contains("alone serves it"), "{doctor}");
    assert!(
        doctor.contains("hsmux cannot check keys of type Ed448"),
        "{doctor}"
    );
    rig.hsmux("status --check").ok();
}

/// A configured number of replicas forbids keys with fewer.
#[test]
fn no_key_is_made_that_two_members_should_have() {
    let mut rig = Rig::prepare(Setup::Daemon, 3);
    rig.config.pool.push_str("\nreplicas = 2");
    rig.write_config();
    rig.start();
    let run = rig.run("/usr/bin/python3");
    let run = run
        .arg(source().join("tests/suite/programs/edwards.py"))
        .arg(rig.module())
        .arg(rig.label())
        .arg(rig.pin());
    run.fails().says("C_GenerateKeyPair");
    let rows = rig.hsmux("key list --json").ok().out;
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    assert!(rows.iter().all(|row| row["label"] != "ed25519"), "{rows:?}");
}
