//! Keys that another program adds to SoftHSM, and takes from it, at the moment at which a worker writes keys of the
//! broker's own. A process that writes before it has looked loses sight of what others have added: SoftHSM's lost
//! update (C_FindObjects does not show the key until the next change by another process).

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hsmux_suite::{Caller, Rig, SOFTHSM, Setup, SoftHsm, until};
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::rig::{Broker, OTHERS};

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

/// A key that is lost from sight is so until a fresh process looks, half a minute later: a change is known before
/// that on a busy machine, too.
const SOON: Duration = Duration::from_secs(15);

/// What docs/broker.md promises of each change. A debug build takes 0.7 s at most, on a machine with three times as
/// much to do as it has processors.
pub const A_SECOND: Duration = Duration::from_secs(1);

/// So many changes may be tried once more, for a machine may stand still for a moment.
const AGAIN: usize = 2;

/// When the other program writes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Before,
    Meanwhile,
    After,
}

/// What it does to a key.
#[derive(Clone, Copy, Debug)]
enum Theirs {
    Add,
    Remove,
    /// There is nothing to be seen of it.
    AddAndRemove,
    /// Another key of the same label and CKA_ID.
    Replace,
}

/// What the broker does: method, path and body.
type Ours = (&'static str, &'static str, &'static str);

/// Of one key or two; `app-old` is there, and may be deleted.
const OURS: [Ours; 4] = [
    ("POST", "keys/app-new", ""),
    ("POST", "keys/app-pair", r#"{"type": "aes256-cbc"}"#),
    ("POST", "keys/app-own/rotate", ""),
    ("DELETE", "keys/app-old", ""),
];

/// Another program, with a session of its own on the token.
struct Other(Caller);

impl Other {
    fn start(broker: &Broker) -> Self {
        let mut caller = Caller::start_on(&broker.rig, SOFTHSM);
        let pin = SoftHsm::pin("hsm1");
        caller.ok("open", json!({"label": "hsm1", "pin": pin}));
        Self(caller)
    }

    fn add(&mut self, label: &str) {
        let names = json!({"label": label, "kind": "secret"});
        self.0.ok("generate", names);
    }

    fn remove(&mut self, label: &str) {
        let names = json!({"label": label, "kind": "secret"});
        self.0.ok("destroy", names);
    }

    fn act(&mut self, theirs: Theirs, label: &str) {
        if matches!(theirs, Theirs::Remove | Theirs::Replace) {
            self.remove(label);
        }
        if !matches!(theirs, Theirs::Remove) {
            self.add(label);
        }
        if matches!(theirs, Theirs::AddAndRemove) {
            self.remove(label);
        }
    }
}

/// A client with a connection of its own.
struct Client {
    connection: Connection,
    token: String,
}

impl Client {
    fn of(broker: &Broker) -> Self {
        Self {
            connection: Connection::tcp(&broker.url),
            token: broker.token.clone(),
        }
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let path = format!("/v1/transit/{path}");
        let answer = self.connection.ask(method, &path, &self.token, body);
        let answer = answer.expect("an answer");
        let json = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
        (answer.status, json)
    }

    fn good(&mut self, (method, path, body): Ours) {
        let (status, json) = self.ask(method, path, body);
        let done = matches!(status, 200 | 204);
        assert!(done, "{method} {path}: {status} {json}");
    }

    /// The ciphertext by the key of this label, or the status of the error.
    fn seal(&mut self, label: &str) -> Result<String, u16> {
        let (status, json) = self.ask("POST", &format!("encrypt/label:{label}"), TEXT);
        let sealed = json["data"]["ciphertext"].as_str();
        sealed.map(str::to_owned).ok_or(status)
    }

    fn opens(&mut self, label: &str, sealed: &str) -> bool {
        let body = json!({ "ciphertext": sealed }).to_string();
        let (status, json) = self.ask("POST", &format!("decrypt/label:{label}"), &body);
        let words = json["errors"][0].as_str().unwrap_or_default();
        let other = status == 404 || words.contains("not of this key");
        assert!(status == 200 || other, "{status} {json}");
        status == 200
    }

    /// How long it takes until it is as the other program has left it.
    fn notices(&mut self, label: &str, theirs: Theirs, before: &str) -> Duration {
        let begun = Instant::now();
        let what = format!("{label}: {theirs:?}");
        until(&what, SOON, || {
            let noticed = match (self.seal(label), theirs) {
                (Ok(sealed), Theirs::Add) => self.opens(label, &sealed),
                // By all workers: none has the key of before.
                (Ok(sealed), Theirs::Replace) => {
                    self.opens(label, &sealed) && !self.opens(label, before)
                }
                (Err(404), Theirs::Remove | Theirs::AddAndRemove) => true,
                (Ok(_) | Err(404), _) => false,
                (Err(status), _) => panic!("{what}: {status}"),
            };
            noticed.then_some(())
        });
        begun.elapsed()
    }
}

/// Both write, in this order; how long it takes until the broker knows of the other's.
fn round(
    broker: &Broker,
    other: &mut Other,
    (when, ours, theirs): (When, Ours, Theirs),
    label: &str,
) -> Duration {
    let mut client = Client::of(broker);
    let mut before = String::new();
    if matches!(theirs, Theirs::Remove | Theirs::Replace) {
        other.add(label);
        before = until("the key to be removed", SOON, || client.seal(label).ok());
    }
    match when {
        When::Before => {
            other.act(theirs, label);
            client.good(ours);
        }
        When::After => {
            client.good(ours);
            other.act(theirs, label);
        }
        When::Meanwhile => {
            let both = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    other.act(theirs, label);
                });
                both.wait();
                client.good(ours);
            });
        }
    }
    client.notices(label, theirs, &before)
}

/// Every moment, with everything that either does.
fn all() -> impl Iterator<Item = (When, Ours, Theirs)> {
    let moments = [When::Before, When::Meanwhile, When::After];
    moments.into_iter().flat_map(|when| {
        OURS.into_iter().flat_map(move |ours| {
            let theirs = [
                Theirs::Add,
                Theirs::Remove,
                Theirs::AddAndRemove,
                Theirs::Replace,
            ];
            theirs.map(|theirs| (when, ours, theirs))
        })
    })
}

/// What a round finds: nothing of what the one before has made, and a key to delete.
fn free_names(client: &mut Client) {
    for path in ["keys/app-new", "keys/app-pair"] {
        delete(client, path);
    }
    if client.ask("GET", "keys/app-old", "").0 == 404 {
        client.good(("POST", "keys/app-old", ""));
        let allow = r#"{"deletion_allowed": true}"#;
        client.good(("POST", "keys/app-old/config", allow));
    }
}

/// What a round leaves of the broker's own keys.
fn delete(client: &mut Client, path: &'static str) {
    let (status, _) = client.ask("GET", path, "");
    if status == 200 {
        let body = r#"{"deletion_allowed": true}"#;
        let config = format!("{path}/config");
        assert_eq!(client.ask("POST", &config, body).0, 200);
        client.good(("DELETE", path, ""));
    }
}

#[test]
fn whoever_writes_first_a_key_of_another_program_is_known_and_a_removed_one_is_not() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.config.members[0].more.push_str("workers = 2");
    let broker = Broker::over(rig, OTHERS).known();
    let (mut other, mut client) = (Other::start(&broker), Client::of(&broker));
    client.good(("POST", "keys/app-own", ""));
    other.add("stays");
    until("the first key", SOON, || client.seal("stays").ok());

    let (mut again, mut there) = (AGAIN, vec!["stays".to_owned()]);
    let mut labels = (0..).map(|number| format!("key{number}"));
    for (when, ours, theirs) in all() {
        let mut one = || {
            free_names(&mut client);
            let label = labels.next().expect("a number");
            let took = round(&broker, &mut other, (when, ours, theirs), &label);
            if matches!(theirs, Theirs::Add | Theirs::Replace) {
                there.push(label);
            }
            took
        };
        let mut took = one();
        while took >= A_SECOND && again > 0 {
            again -= 1;
            took = one();
        }
        assert!(took < A_SECOND, "{when:?} {ours:?} {theirs:?}: {took:?}");
    }
    // Objects that were made later hide none of them, and the broker's own keys still work.
    for label in &there {
        let sealed = client.seal(label).expect(label);
        assert!(client.opens(label, &sealed), "{label}");
    }
    client.good(("POST", "encrypt/app-own", TEXT));
}
