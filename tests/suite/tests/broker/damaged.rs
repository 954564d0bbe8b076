//! The store's file, damaged by another hand while the broker runs: keys in use go on, what meets the damage says so,
//! and the next start takes nothing from it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::rig::Broker;
use crate::store::{TEXT, decrypts, encrypt, is_later};

const IN_USE: [(&str, &str); 2] = [("app-gcm", "aes256-gcm96"), ("app-cbc", "aes256-cbc")];

const DAMAGED: &str = "it is damaged: put a backup in its place, or move it away";

/// What has to be written: done, or 503 and why.
fn is_done_or_said(broker: &Broker, path: &str, body: &str) -> bool {
    let (status, json) = broker.ask("POST", path, body);
    if status != 200 {
        is_later(broker, path, body, DAMAGED);
    }
    assert!([200, 503].contains(&status), "{path}: {status} {json}");
    status == 200
}

/// `spoil` gets the path of the store's file.
fn spoiled_while_it_runs(spoil: impl Fn(&Path)) {
    let mut broker = Broker::start(1).known();
    for (key, kind) in IN_USE {
        let body = format!(r#"{{"type": "{kind}"}}"#);
        broker.good("POST", &format!("keys/{key}"), &body);
    }
    broker.good("POST", "keys/app-unused", "");
    // From here on what was written is in the file itself, and no longer in its log.
    broker.rig.stop();
    broker.start_again();
    let sealed = IN_USE.map(|(key, _)| (key, encrypt(&broker, key)));
    let store = broker.rig.path("state/broker.sqlite");
    spoil(&store);

    let go_on = |broker: &Broker| {
        for (key, sealed) in &sealed {
            decrypts(broker, key, sealed);
            decrypts(broker, key, &encrypt(broker, key));
        }
    };
    go_on(&broker);
    let made = is_done_or_said(&broker, "keys/app-new", "");
    is_done_or_said(&broker, "keys/app-gcm/rotate", "");
    is_done_or_said(&broker, "encrypt/app-unused", TEXT);
    go_on(&broker);
    let log = broker.rig.daemon.as_ref().expect("a daemon").log();
    assert!(!log.contains("panicked"), "{log}");

    broker.rig.stop();
    broker.rig.hsmux("serve").fails().says(DAMAGED);
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(broker.rig.path(&format!("state/broker.sqlite{end}")));
    }
    broker.start_again();
    let token = broker.rig.hsmux("token-auth create app").ok();
    token.out.trim().clone_into(&mut broker.token);
    let broker = broker.known();
    // It may have been rotated, and nobody knows which versions were forbidden.
    let allow = r#"{"min_decryption_version": 1}"#;
    broker.good("POST", "keys/app-gcm/config", allow);
    for (key, sealed) in &sealed {
        decrypts(&broker, key, sealed);
    }
    broker.refused("POST", "encrypt/app-gcm", TEXT, 400, "rotate the key");
    // What was answered is there, and what was not may not be.
    let (status, _) = broker.ask("GET", "keys/app-new", "");
    assert!(!made || status == 200, "{status}");
}

fn noise(file: &Path, from: u64) {
    let length = fs::metadata(file).expect("the file").len();
    let file = File::options().write(true).open(file).expect("the file");
    let noise: Vec<_> = (from..length).map(|at| (at * 37 % 251) as u8).collect();
    file.write_all_at(&noise, from).expect("write");
}

#[test]
fn noise_in_place_of_the_file() {
    spoiled_while_it_runs(|store| noise(store, 0));
}

#[test]
fn noise_behind_its_first_page() {
    spoiled_while_it_runs(|store| noise(store, 4096));
}

#[test]
fn a_file_that_is_cut_off() {
    for pages in [0, 4] {
        spoiled_while_it_runs(|store| {
            let file = File::options().write(true).open(store).expect("the file");
            file.set_len(pages * 4096).expect("cut it off");
        });
    }
}

#[test]
fn noise_in_its_log() {
    spoiled_while_it_runs(|store| noise(&store.with_extension("sqlite-wal"), 0));
}
