//! What a request costs the token's module, as OpenSC's spy counts: the same however many keys there are.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use hsmux_suite::{OPENSC, PATIENCE, Rig, SOFTHSM, Setup, until};
use serde_json::Value;

use crate::connection::Connection;
use crate::rig::Broker;

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;
const REQUESTS: usize = 20;

/// Keys of another program, beside the one that is used.
const OTHERS: u32 = 10_000;

/// Requests of each kind, so many that what goes by the clock is less, and keys of another program.
const MANY: usize = 300;
const SOME: u32 = 500;

/// Calls of the module by their names, for so many times encrypt and decrypt.
fn calls(broker: &Broker, requests: usize) -> BTreeMap<String, usize> {
    let log = broker.rig.path("spy.log");
    let before = fs::metadata(&log).expect("the spy's log").len();
    let mut client = Connection::tcp(&broker.url);
    let mut ask = |path: &str, body: &str| {
        let path = format!("/v1/transit/{path}/app-key");
        let answer = client.ask("POST", &path, &broker.token, body);
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let json: Value = serde_json::from_str(&answer.body).expect("JSON");
        json["data"].clone()
    };
    for _ in 0..requests {
        let sealed = ask("encrypt", TEXT);
        ask("decrypt", &sealed.to_string());
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

/// A SoftHSM token behind the spy, and a key.
fn spied(more: &str, pool: &str) -> Broker {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.config.pool.push_str(pool);
    let log = rig.path("spy.log");
    let member = &mut rig.config.members[0];
    member.module = Path::new(OPENSC).with_file_name("pkcs11-spy.so");
    member.more = format!(
        "{more}\nenv = {{ PKCS11SPY = \"{SOFTHSM}\", PKCS11SPY_OUTPUT = \"{}\" }}",
        log.display()
    );
    let broker = Broker::over(rig, "").known();
    broker.good("POST", "keys/app-key", "");
    broker
}

/// Starts it again with so many keys of another program in its token.
fn fill(broker: &mut Broker, others: u32) {
    broker.rig.stop();
    fs::remove_file(broker.rig.path("spy.log")).expect("the spy's log");
    broker.rig.softhsm.fill("hsm1", others);
    broker.start_again();
    let status = broker.rig.status();
    let known = status["pool"]["objects"].as_array().expect("objects").len();
    assert!(known > others as usize, "{known}");
}

const USES: [&str; 4] = ["EncryptInit", "Encrypt", "DecryptInit", "Decrypt"];

/// As it is configured where nothing is said: keys in use are copied, and a process beside the worker looks for what
/// others change. Both go by the clock.
#[test]
fn as_configured_by_default_nothing_but_its_use_is_called_for_each_request() {
    let mut broker = spied("", "");
    let by_the_request = |broker: &Broker, what: &str| {
        until(what, PATIENCE, || {
            let mut calls = calls(broker, MANY);
            let uses = USES.map(|name| calls.remove(name));
            let seldom = calls.values().all(|times| *times < MANY);
            (uses == [Some(MANY); 4] && seldom).then_some(())
        });
    };
    by_the_request(&broker, "with one key");
    fill(&mut broker, SOME);
    by_the_request(&broker, "with five hundred");
}

#[test]
fn a_request_calls_the_module_as_often_whatever_the_number_of_keys() {
    // A copy of a key is looked after by the clock.
    let mut broker = spied("copies = false", "\nwatch = false");
    // What a key and a session need once.
    calls(&broker, REQUESTS);
    let expected = BTreeMap::from(USES.map(|name| (name.to_owned(), REQUESTS)));
    let same = |broker: &Broker, what: &str| {
        // The proofs of new keys go on for a moment.
        until(what, PATIENCE, || {
            (calls(broker, REQUESTS) == expected).then_some(())
        });
    };
    same(&broker, "with one key");
    for number in 0..40 {
        broker.good("POST", &format!("keys/app-{number}"), "");
    }
    same(&broker, "with forty more");
    fill(&mut broker, OTHERS);
    same(&broker, "with ten thousand");
}
