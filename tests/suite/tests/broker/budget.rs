//! How often a GCM key enciphers: counted over all members, also where the broker was killed in the middle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hsmux_suite::{Rig, Setup};
use serde_json::Value;

use crate::connection::Connection;
use crate::rig::Broker;
use crate::store::{TEXT, decrypts};

/// Of one key (NIST SP 800-38D, section 8.3), and reserved at once.
const LIMIT: u64 = 1 << 32;
const BLOCK: u64 = 1 << 16;

/// Uses that are left after the first block.
const LEFT: usize = 300;
/// Uses before the broker is killed.
const SOME: usize = 60;
const CLIENTS: usize = 4;

/// The store says that all uses but so many were reserved before.
fn leave(broker: &Broker, uses: u64) {
    let sql = format!(
        "INSERT OR REPLACE INTO budgets SELECT object, {} FROM versions",
        LIMIT - uses
    );
    let program = format!(
        "import sqlite3\nstore = sqlite3.connect('state/broker.sqlite')\n\
         store.execute({sql:?})\nstore.commit()\n"
    );
    let python = broker.rig.run("/usr/bin/python3").arg("-c").arg(program);
    python.ok();
}

/// Clients side by side encipher until they are refused, or so many texts are made.
fn encipher(broker: &Broker, most: usize) -> Vec<String> {
    let begun = AtomicUsize::new(0);
    let client = || {
        let mut connection = Connection::tcp(&broker.url);
        let mut made = Vec::new();
        while begun.fetch_add(1, Ordering::Relaxed) < most {
            let path = "/v1/transit/encrypt/app-gcm";
            let answer = connection.ask("POST", path, &broker.token, TEXT);
            let answer = answer.expect("an answer");
            if answer.status != 200 {
                assert_eq!(answer.status, 400, "{}", answer.body);
                assert!(answer.body.contains("rotate the key"), "{}", answer.body);
                break;
            }
            let json: Value = serde_json::from_str(&answer.body).expect("JSON");
            let text = json["data"]["ciphertext"].as_str();
            made.push(text.expect("a ciphertext").to_owned());
        }
        made
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let clients = clients.into_iter();
        let made = clients.flat_map(|client| client.join().expect("texts"));
        made.collect()
    })
}

fn all_have_served(broker: &Broker) -> bool {
    let status = broker.rig.status();
    let members = status["members"].as_array().expect("members");
    let served = |member: &Value| member["served"].as_u64() > Some(0);
    members.iter().all(served)
}

#[test]
fn no_use_is_had_twice_nor_one_too_many_over_two_members_and_two_kills() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.config.pool.push_str("\nreplicas = 2");
    let mut broker = Broker::over(rig, "");
    broker.good("POST", "keys/app-gcm", "");
    broker.rig.stop();
    leave(&broker, BLOCK + LEFT as u64);

    broker.start_again();
    let mut texts = encipher(&broker, SOME);
    assert_eq!(texts.len(), SOME);
    // What is left of its block goes with it; the next is as long as what is left of all.
    broker.rig.kill_to_the_last();
    broker.start_again();
    let rest = encipher(&broker, usize::MAX);
    assert_eq!(rest.len(), LEFT, "over both members together");
    assert!(all_have_served(&broker), "{}", broker.rig.status());
    texts.extend(rest);

    // The same key with as many uses left; the kill comes in the middle of its last block.
    broker.rig.stop();
    leave(&broker, LEFT as u64);
    broker.start_again();
    texts.extend(encipher(&broker, SOME));
    broker.rig.kill_to_the_last();
    broker.start_again();
    assert_eq!(encipher(&broker, usize::MAX), Vec::<String>::new());
    for sealed in [&texts[0], &texts[SOME], &texts[SOME + LEFT]] {
        decrypts(&broker, "app-gcm", sealed);
    }
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), SOME + LEFT + SOME);
    broker.good("POST", "keys/app-gcm/rotate", "");
    assert_eq!(encipher(&broker, SOME).len(), SOME);
}
