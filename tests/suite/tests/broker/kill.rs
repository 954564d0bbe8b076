//! kill -9 at random moments: what was acknowledged stays, and what was not leaves nothing behind.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use hsmux_suite::{PATIENCE, SOFTHSM, running, until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::held::until_whole;
use crate::rig::Broker;

const KILLS: usize = 6;
const KINDS: [&str; 4] = ["aes256-gcm96", "aes256-cbc", "aes256-cbc", SIGNING];
const SIGNING: &str = "ecdsa-p256";
/// Uses of a GCM key that the broker reserves at once.
const BLOCK: u64 = 1 << 16;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit
    }
}

/// A key as its client knows it.
#[derive(Debug)]
struct Known {
    kind: &'static str,
    /// The latest version that was acknowledged; 0: nothing was.
    latest: u32,
    /// Whether a rotation, or its deletion, was asked for and not answered.
    rotating: bool,
    deleting: bool,
    /// Ciphertexts, or signatures.
    made: Vec<String>,
}

/// A client with keys of its own.
struct Client {
    name: char,
    random: Random,
    made: usize,
    keys: BTreeMap<String, Known>,
    gone: BTreeSet<String>,
    /// Versions that have enciphered since the last start.
    used: BTreeSet<(String, u32)>,
}

/// `None`: the broker did not answer, or its daemon was no longer there.
fn ask(broker: &Broker, method: &str, path: &str, body: &str) -> Option<Value> {
    let done = broker
        .rig
        .run("curl")
        .args("--silent --write-out \\n%{http_code} --data-binary @- --request")
        .arg(method)
        .arg("--header")
        .arg(format!("X-Vault-Token: {}", broker.token))
        .arg(format!("{}/v1/transit/{path}", broker.url))
        .input(body)
        .finish();
    if done.code != Some(0) {
        return None;
    }
    let (json, status) = done.out.rsplit_once('\n')?;
    if status == "503" && json.contains("the daemon") {
        return None;
    }
    assert!(matches!(status, "200" | "204"), "{method} {path}: {done}");
    let answer: Value = serde_json::from_str(json).unwrap_or(Value::Null);
    Some(answer["data"].clone())
}

impl Client {
    fn new(name: char, seed: u64) -> Self {
        Self {
            name,
            random: Random(seed),
            made: 0,
            keys: BTreeMap::new(),
            gone: BTreeSet::new(),
            used: BTreeSet::new(),
        }
    }

    /// Works until the broker no longer answers.
    fn work(&mut self, broker: &Broker, answered: &AtomicUsize) {
        self.used.clear();
        while self.step(broker).is_some() {
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn step(&mut self, broker: &Broker) -> Option<()> {
        let at = usize::try_from(self.random.below(1 << 20)).expect("a number");
        let name = self.keys.keys().nth(at % self.keys.len().max(1)).cloned();
        match (name, self.random.below(10)) {
            (None, _) | (_, 0..4) => self.create(broker),
            (Some(name), 4..6) => self.rotate(broker, &name),
            (Some(name), 6..8) if self.keys.len() > 2 => self.delete(broker, &name),
            (Some(name), _) => self.make(broker, &name),
        }
    }

    fn create(&mut self, broker: &Broker) -> Option<()> {
        self.made += 1;
        let name = format!("app-{}{}", self.name, self.made);
        let kind = KINDS[usize::try_from(self.random.below(4)).expect("a number")];
        let key = self.keys.entry(name.clone()).or_insert(Known {
            kind,
            latest: 0,
            rotating: false,
            deleting: false,
            made: Vec::new(),
        });
        let body = json!({"type": kind}).to_string();
        ask(broker, "POST", &format!("keys/{name}"), &body)?;
        key.latest = 1;
        Some(())
    }

    fn rotate(&mut self, broker: &Broker, name: &str) -> Option<()> {
        let key = self.keys.get_mut(name)?;
        key.rotating = true;
        ask(broker, "POST", &format!("keys/{name}/rotate"), "")?;
        (key.latest, key.rotating) = (key.latest + 1, false);
        Some(())
    }

    fn delete(&mut self, broker: &Broker, name: &str) -> Option<()> {
        let allow = r#"{"deletion_allowed": true}"#;
        ask(broker, "POST", &format!("keys/{name}/config"), allow)?;
        self.keys.get_mut(name)?.deleting = true;
        self.used.retain(|(used, _)| used != name);
        ask(broker, "DELETE", &format!("keys/{name}"), "")?;
        self.keys.remove(name);
        self.gone.insert(name.to_owned());
        Some(())
    }

    /// Enciphers, or signs.
    fn make(&mut self, broker: &Broker, name: &str) -> Option<()> {
        let key = self.keys.get_mut(name)?;
        let (path, input, made) = if key.kind == SIGNING {
            ("sign", "input", "signature")
        } else {
            ("encrypt", "plaintext", "ciphertext")
        };
        let body = json!({input: "c2VjcmV0"}).to_string();
        let answer = ask(broker, "POST", &format!("{path}/{name}"), &body)?;
        key.made.push(answer[made].as_str().expect(made).to_owned());
        if key.kind.contains("gcm") {
            self.used.insert((name.to_owned(), key.latest));
        }
        Some(())
    }

    /// What was acknowledged is there; what was asked for and not answered was done, or was not.
    fn verify(&mut self, broker: &Broker) {
        let names: Vec<_> = self.keys.keys().cloned().collect();
        for name in names {
            let (status, shown) = broker.ask("GET", &format!("keys/{name}"), "");
            let key = self.keys.get_mut(&name).expect("the key");
            if status == 404 && (key.deleting || key.latest == 0) {
                if key.deleting {
                    self.gone.insert(name.clone());
                }
                self.keys.remove(&name);
                continue;
            }
            assert_eq!(status, 200, "{name} {key:?}: {shown}");
            let latest = shown["data"]["latest_version"].as_u64();
            let latest = latest
                .and_then(|n| u32::try_from(n).ok())
                .expect("a number");
            let most = key.latest.max(1) + u32::from(key.rotating);
            assert!(
                (key.latest..=most).contains(&latest),
                "{name} {key:?}: {latest}"
            );
            (key.latest, key.rotating, key.deleting) = (latest, false, false);
            self.look_at_what_was_made(broker, &name);
        }
        for name in &self.gone {
            let (status, _) = broker.ask("GET", &format!("keys/{name}"), "");
            assert_eq!(status, 404, "{name} was deleted");
        }
    }

    /// All of it opens, or verifies. For that the public half is enough: so each key that signs does it once more.
    fn look_at_what_was_made(&mut self, broker: &Broker, name: &str) {
        let signs = self.keys[name].kind == SIGNING;
        if signs {
            self.make(broker, name).expect("an answer");
        }
        let made = &self.keys[name].made;
        if made.is_empty() {
            return;
        }
        let (path, field, found, expected) = if signs {
            ("verify", "signature", "valid", json!(true))
        } else {
            ("decrypt", "ciphertext", "plaintext", json!("c2VjcmV0"))
        };
        let items = made.iter();
        let items: Vec<_> = items
            .map(|text| json!({field: text, "input": "c2VjcmV0"}))
            .collect();
        let body = json!({"batch_input": items}).to_string();
        let answer = broker.good("POST", &format!("{path}/{name}"), &body);
        let results = answer["batch_results"].as_array().expect("results");
        assert_eq!(results.len(), made.len(), "{name}: {answer}");
        for item in results {
            assert_eq!(item[found], expected, "{name}: {answer}");
        }
    }
}

/// Uses of each version that are reserved, from a copy of the store's files as they were left.
fn reserved(broker: &Broker) -> BTreeMap<(String, u32), u64> {
    const READ: &str = "
import json, sqlite3
rows = sqlite3.connect('copy/broker.sqlite').execute(
    'SELECT key, number, reserved FROM versions JOIN budgets USING (object)')
print(json.dumps([list(row) for row in rows]))";
    let copy = "rm -rf copy && mkdir copy && cp state/broker.sqlite* copy/";
    broker.rig.run("sh").arg("-c").arg(copy).ok();
    let read = broker.rig.run("/usr/bin/python3").arg("-c").arg(READ).ok();
    let rows: Vec<(String, u32, u64)> = serde_json::from_str(&read.out).expect("rows");
    let rows = rows.into_iter();
    rows.map(|(name, number, reserved)| ((name, number), reserved))
        .collect()
}

/// Lets the clients work, and kills the broker at some moment.
fn live_and_die(broker: &mut Broker, clients: &mut [Client; 3], random: &mut Random) {
    let answered = AtomicUsize::new(0);
    let daemon = broker.rig.daemon.as_ref().expect("a daemon");
    let workers = daemon.children();
    let enough = usize::try_from(4 + random.below(20)).expect("a number");
    let moment = Duration::from_micros(random.below(30_000));
    thread::scope(|scope| {
        let broker = &*broker;
        for client in clients.iter_mut() {
            scope.spawn(|| client.work(broker, &answered));
        }
        until("answers", PATIENCE, || {
            (answered.load(Ordering::Relaxed) >= enough).then_some(())
        });
        // In the middle of whatever it does by then.
        thread::sleep(moment);
        daemon.signal(Signal::KILL);
    });
    broker.rig.kill();
    until("the workers end", PATIENCE, || {
        (!workers.iter().copied().any(running)).then_some(())
    });
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_half_made_stays() {
    let seed = RandomState::new().hash_one("seed");
    eprintln!("seed {seed:#x}");
    let mut random = Random(seed);
    let mut broker = Broker::start(2);
    let mut clients = ['a', 'b', 'c'].map(|name| Client::new(name, random.below(u64::MAX)));
    let mut before = BTreeMap::new();
    for kill in 1..=KILLS {
        live_and_die(&mut broker, &mut clients, &mut random);
        let after = reserved(&broker);
        for version in clients.iter().flat_map(|client| &client.used) {
            // What was left of the block before went with the start before.
            let blocks = before.get(version).copied().unwrap_or(0) + BLOCK;
            assert_eq!(
                after.get(version),
                Some(&blocks),
                "kill {kill}: {version:?}"
            );
        }
        before = after;
        broker.start_again();
        until_whole(&broker, &["hsm1", "hsm2"]);
        for client in &mut clients {
            client.verify(&broker);
        }
    }
    let slots = broker.rig.run("pkcs11-tool").arg("--module").arg(SOFTHSM);
    let slots = slots.arg("--list-token-slots").ok();
    slots
        .says("PIN initialized")
        .never_says("PIN count low")
        .never_says("final");
}
