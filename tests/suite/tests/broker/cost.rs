//! What a request costs the token's module, as OpenSC's spy counts: the same however many keys there are.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use hsmux_suite::{OPENSC, PATIENCE, Rig, SOFTHSM, Setup, until};

use crate::rig::Broker;

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;
const REQUESTS: usize = 20;

/// Keys of another program, beside the one that is used.
const OTHERS: u32 = 10_000;

/// Calls of the module by their names, for so many times encrypt and decrypt.
fn calls(broker: &Broker) -> BTreeMap<String, usize> {
    let log = broker.rig.path("spy.log");
    let before = fs::metadata(&log).expect("the spy's log").len();
    for _ in 0..REQUESTS {
        let sealed = broker.good("POST", "encrypt/app-key", TEXT);
        let body = serde_json::json!({ "ciphertext": sealed["ciphertext"] }).to_string();
        broker.good("POST", "decrypt/app-key", &body);
    }
    let mut said = File::open(&log).expect("the spy's log");
    said.seek(SeekFrom::Start(before)).expect("what is new");
    let mut calls = BTreeMap::new();
    for line in BufReader::new(said).split(b'\n') {
        let line = String::from_utf8_lossy(&line.expect("a line")).into_owned();
        // `17: C_EncryptInit`
        if let Some((_, name)) = line.split_once(": C_") {
            *calls.entry(name.trim().to_owned()).or_default() += 1;
        }
    }
    calls
}

#[test]
fn a_request_calls_the_module_as_often_whatever_the_number_of_keys() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.config.pool.push_str("\nwatch = false");
    let log = rig.path("spy.log");
    let member = &mut rig.config.members[0];
    member.module = Path::new(OPENSC).with_file_name("pkcs11-spy.so");
    member.more = format!(
        // A copy of a key is looked after by the clock.
        "copies = false\nenv = {{ PKCS11SPY = \"{SOFTHSM}\", PKCS11SPY_OUTPUT = \"{}\" }}",
        log.display()
    );
    let mut broker = Broker::over(rig, "");
    broker.good("POST", "keys/app-key", "");
    // What a key and a session need once.
    calls(&broker);
    let expected = BTreeMap::from(
        ["EncryptInit", "Encrypt", "DecryptInit", "Decrypt"]
            .map(|name| (name.to_owned(), REQUESTS)),
    );
    let same = |broker: &Broker, what: &str| {
        // The proofs of new keys go on for a moment.
        until(what, PATIENCE, || (calls(broker) == expected).then_some(()));
    };
    same(&broker, "with one key");
    for number in 0..40 {
        broker.good("POST", &format!("keys/app-{number}"), "");
    }
    same(&broker, "with forty more");

    broker.rig.stop();
    fs::remove_file(broker.rig.path("spy.log")).expect("the spy's log");
    broker.rig.softhsm.fill("hsm1", OTHERS);
    broker.start_again();
    let status = broker.rig.status();
    let known = status["pool"]["objects"].as_array().expect("objects").len();
    assert!(known > OTHERS as usize, "{known}");
    same(&broker, "with ten thousand");
}
