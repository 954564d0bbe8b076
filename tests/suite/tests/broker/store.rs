//! The store's file: held by another program, damaged, on a full disk, backed up and put back, left by a crash.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hsmux_suite::{Process, Program, built};
use serde_json::{Value, json};

use crate::held::{MARK, ids_on_token, until_whole};
use crate::rig::Broker;

/// A program that holds the store, and says so.
const HOLD: &str = "
import signal, sqlite3
store = sqlite3.connect('state/broker.sqlite', isolation_level=None)
store.execute('BEGIN EXCLUSIVE')
print('held', flush=True)
signal.pause()";

pub const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

pub fn encrypt(broker: &Broker, key: &str) -> String {
    let sealed = broker.good("POST", &format!("encrypt/{key}"), TEXT);
    sealed["ciphertext"]
        .as_str()
        .expect("a ciphertext")
        .to_owned()
}

pub fn decrypts(broker: &Broker, key: &str, sealed: &str) {
    let body = format!(r#"{{"ciphertext": "{sealed}"}}"#);
    let opened = broker.good("POST", &format!("decrypt/{key}"), &body);
    assert_eq!(opened["plaintext"], "c2VjcmV0");
}

/// 503, and when to come back.
pub fn is_later(broker: &Broker, path: &str, body: &str, words: &str) {
    let done = broker.curl(&broker.token, "POST", path, body, "--include");
    let head = done.to_lowercase();
    assert!(head.starts_with("http/1.1 503"), "{path}: {done}");
    assert!(head.contains("\nretry-after: "), "{path}: {done}");
    assert!(done.contains(words), "{path}: {done}");
}

#[test]
fn while_another_program_holds_the_store_keys_in_use_go_on() {
    let broker = Broker::start(1);
    for kind in ["aes256-gcm96", "aes256-cbc"] {
        let body = format!(r#"{{"type": "{kind}"}}"#);
        broker.good("POST", &format!("keys/app-{kind}"), &body);
        encrypt(&broker, &format!("app-{kind}"));
    }
    broker.good("POST", "keys/app-unused", "");

    let python = broker.rig.run("/usr/bin/python3").arg("-c").arg(HOLD);
    let mut holder = Process::start("holder", &broker.rig.path("."), python);
    holder.wait_for("held");
    for kind in ["aes256-gcm96", "aes256-cbc"] {
        let key = format!("app-{kind}");
        decrypts(&broker, &key, &encrypt(&broker, &key));
    }
    let words = "broker.sqlite: database is locked";
    is_later(&broker, "keys/app-new", "", words);
    is_later(&broker, "keys/app-aes256-gcm96/rotate", "", words);
    is_later(&broker, "encrypt/app-unused", TEXT, words);
    let refused = broker.rig.hsmux("token-auth create other").fails();
    refused.says("another program holds it");
    let (status, _) = broker.ask("GET", "keys/app-new", "");
    assert_eq!(status, 404);

    holder.kill();
    broker.good("POST", "keys/app-new", "");
    encrypt(&broker, "app-unused");
    until_whole(&broker, &["hsm1"]);
}

#[test]
fn a_damaged_store_is_a_persons_to_decide_about() {
    let mut broker = Broker::start(1);
    broker.good("POST", "keys/app-gcm", "");
    let sealed = encrypt(&broker, "app-gcm");
    broker.rig.stop();
    let store = broker.rig.path("state/broker.sqlite");
    let damage = "no database, whatever its name says".repeat(300);
    fs::write(&store, &damage).expect("write the store");
    for line in ["serve", "broker --backup copy.sqlite", "token-auth list"] {
        let refused = broker.rig.hsmux(line).fails();
        refused
            .says("state/broker.sqlite")
            .says("it is damaged")
            .says("move it away");
    }
    assert_eq!(fs::read_to_string(&store).expect("the store"), damage);

    fs::rename(&store, broker.rig.path("damaged")).expect("move it away");
    broker.start_again();
    let token = broker.rig.hsmux("token-auth create app").ok();
    token.out.trim().clone_into(&mut broker.token);
    decrypts(&broker, "app-gcm", &sealed);
    broker.refused("POST", "encrypt/app-gcm", TEXT, 400, "rotate the key");
}

#[test]
fn a_full_disk_stops_changes_and_no_key_in_use() {
    let mut broker = Broker::start(1);
    broker.rig.stop();
    let small = broker.rig.path("small");
    fs::create_dir(&small).expect("a folder");
    let module = &mut broker.rig.config.module;
    let store = "[broker]\nstore = \"small/broker.sqlite\"\n";
    *module = module.replacen("[broker]\n", store, 1);
    let mount = "mount -t tmpfs -o size=400k tmpfs small && exec \"$@\"";
    let daemon = broker.rig.run("unshare").args("--mount sh -c").arg(mount);
    broker.start_again_by(daemon.arg("sh").arg(built(Program::Hsmux)).arg("serve"));
    let pid = broker.rig.daemon.as_ref().expect("a daemon").id();
    let beside = || {
        let run = broker.rig.run("nsenter").args("--mount --target");
        run.arg(pid.to_string()).arg("--")
    };
    let config = broker.rig.path("hsmux.toml");
    let token = beside()
        .arg(built(Program::Hsmux))
        .arg("--config")
        .arg(config);
    let token = token.args("token-auth create app").ok();
    token.out.trim().clone_into(&mut broker.token);
    broker.good("POST", "keys/app-gcm", "");
    let sealed = encrypt(&broker, "app-gcm");

    let beside = |line: &str| {
        let run = broker.rig.run("nsenter").args("--mount --target");
        let run = run.arg(pid.to_string()).args("-- sh -c").arg(line);
        run.arg("sh").arg(small.join("fill")).ok()
    };
    beside("cat /dev/zero > \"$1\" 2>/dev/null || true");
    is_later(&broker, "keys/app-new", "", "make room");
    is_later(&broker, "keys/app-gcm/rotate", "", "make room");
    encrypt(&broker, "app-gcm");
    decrypts(&broker, "app-gcm", &sealed);
    assert_eq!(broker.good("GET", "keys/app-gcm", "")["latest_version"], 1);

    beside("rm \"$1\"");
    broker.good("POST", "keys/app-new", "");
    broker.good("POST", "keys/app-gcm/rotate", "");
    decrypts(&broker, "app-gcm", &sealed);
    until_whole(&broker, &["hsm1"]);
}

#[test]
fn a_backup_taken_while_keys_are_made_is_put_back() {
    let mut broker = Broker::start(2);
    let made = |broker: &Broker, key: &str, kind: &str| {
        let body = format!(r#"{{"type": "{kind}"}}"#);
        broker.good("POST", &format!("keys/{key}"), &body);
        encrypt(broker, key)
    };
    let allow = r#"{"deletion_allowed": true}"#;
    let mut sealed = vec![(
        "app-gcm".to_owned(),
        made(&broker, "app-gcm", "aes256-gcm96"),
    )];
    broker.good("POST", "keys/app-gcm/config", allow);

    let copied = AtomicBool::new(false);
    thread::scope(|scope| {
        let making = scope.spawn(|| {
            let (mut texts, mut n) = (Vec::new(), 0);
            while n < 3 || !copied.load(Ordering::Relaxed) {
                let key = format!("app-{n}");
                texts.push((key.clone(), made(&broker, &key, "aes256-cbc")));
                n += 1;
            }
            texts
        });
        let done = broker
            .rig
            .hsmux("broker --backup copy.sqlite --json")
            .finish();
        copied.store(true, Ordering::Relaxed);
        assert_eq!(done.code, Some(0), "{done}");
        sealed.extend(making.join().expect("keys"));
    });
    broker
        .rig
        .hsmux("broker --backup copy.sqlite")
        .fails()
        .says("name a new file");
    sealed.push(("app-late".into(), made(&broker, "app-late", "aes256-gcm96")));
    broker.good("POST", "keys/app-gcm/rotate", "");
    sealed.push(("app-gcm".into(), encrypt(&broker, "app-gcm")));

    broker.rig.stop();
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(broker.rig.path(&format!("state/broker.sqlite{end}")));
    }
    let (copy, store) = ("copy.sqlite", "state/broker.sqlite");
    fs::rename(broker.rig.path(copy), broker.rig.path(store)).expect("the backup");
    broker.start_again();
    until_whole(&broker, &["hsm1", "hsm2"]);
    for (key, text) in &sealed {
        decrypts(&broker, key, text);
    }
    let shown = broker.good("GET", "keys/app-gcm", "");
    let state = (&shown["latest_version"], &shown["deletion_allowed"]);
    assert_eq!(state, (&Value::from(2), &Value::from(false)));
    broker.refused("DELETE", "keys/app-gcm", "", 400, "not allowed");
    encrypt(&broker, "app-0");
    for key in ["app-gcm", "app-late"] {
        let path = format!("encrypt/{key}");
        broker.refused("POST", &path, TEXT, 400, "rotate the key");
        broker.good("POST", &format!("keys/{key}/rotate"), "");
        encrypt(&broker, key);
    }
}

/// Moments that chance seldom meets: the store as a crash leaves it then.
#[test]
fn what_a_crash_has_left_is_finished_or_goes() {
    let mut broker = Broker::start(2);
    let members = ["hsm1", "hsm2"];
    let keys = [
        ("app-half", "aes256-cbc"),
        ("app-whole", "aes256-cbc"),
        ("app-gcm", "aes256-gcm96"),
        ("app-deleted", "aes256-cbc"),
        ("app-pair", "ecdsa-p256"),
        ("app-kept", "aes256-gcm96"),
    ];
    for (name, kind) in keys {
        broker.good(
            "POST",
            &format!("keys/{name}"),
            &json!({"type": kind}).to_string(),
        );
    }
    broker.rig.stop();
    // Made on the tokens, and not written down; of one the second key was not made.
    let mut statements = Vec::new();
    for (name, id) in ids_on_token(&broker, "hsm1") {
        if ["app-half", "app-whole", "app-gcm"].contains(&&*name) {
            statements.push(format!("INSERT INTO intents VALUES (x'{id}')"));
            statements.push(format!("DELETE FROM keys WHERE name = '{name}'"));
        }
        if name == "app-half" && id[MARK.len() + 2..].starts_with("01") {
            for label in members {
                let tool = broker.rig.softhsm.tool(label);
                tool.args(&format!("--delete-object --type secrkey --id {id}"))
                    .ok();
            }
        }
    }
    // Deleted from the store, and still on the tokens.
    for name in ["app-deleted", "app-pair"] {
        for column in ["object", "mac"] {
            statements.push(format!(
                "INSERT INTO doomed SELECT {column}, strftime('%s') FROM versions \
                 WHERE key = '{name}' AND {column} NOT NULL"
            ));
        }
        statements.push(format!("DELETE FROM keys WHERE name = '{name}'"));
    }
    let program = format!(
        "import sqlite3\nstore = sqlite3.connect('state/broker.sqlite', isolation_level=None)\n\
         store.execute('PRAGMA foreign_keys = ON')\nstore.executescript({:?})\n",
        statements.join(";")
    );
    broker
        .rig
        .run("/usr/bin/python3")
        .arg("-c")
        .arg(program)
        .ok();
    broker.start_again();
    until_whole(&broker, &members);
    for name in ["app-half", "app-deleted", "app-pair"] {
        assert_eq!(
            broker.ask("GET", &format!("keys/{name}"), "").0,
            404,
            "{name}"
        );
    }
    // Nobody can have used what nobody was told of.
    for name in ["app-whole", "app-gcm", "app-kept"] {
        let body = r#"{"plaintext": "c2VjcmV0"}"#;
        broker.good("POST", &format!("encrypt/{name}"), body);
    }
    // Nobody has asked for that just now: it is on the trail by itself.
    let trail = broker.rig.hsmux("audit --json --lines 10000").ok();
    let lines = trail.out.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        ["act", "key", "outcome"].map(|field| line[field].as_str().unwrap_or_default().to_owned())
    });
    let lines: Vec<_> = lines.collect();
    for (act, name) in [
        ("broker-key-destroy", "app-half"),
        ("broker-key-destroy", "app-deleted"),
        ("broker-key-destroy", "app-pair"),
        ("broker-key-adopt", "app-whole"),
        ("broker-key-adopt", "app-gcm"),
    ] {
        let done = [act, name, "done"].map(str::to_owned);
        assert!(lines.contains(&done), "{done:?}: {lines:?}");
    }
    let destroyed = |line: &&[String; 3]| line[0] == "broker-key-destroy" && line[1] == "app-kept";
    assert_eq!(lines.iter().find(destroyed), None);
}
