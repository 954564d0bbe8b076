//! Secret keys while the member is away whose copy is believed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hsmux_pool::{Connector, Options, Pool, Seat, SeatState};
use hsmux_token::fake::{Builder, FakeToken};
use hsmux_token::{Error, Kind, Mechanism, Operation, Outcome, Result, Token, Verb, ck};

use crate::vault::*;

/// Enciphers by adding a number, which stands for the key's value.
fn cipher(name: &str, value: u8) -> Builder {
    FakeToken::builder(name)
        .objects(vec![secret(0)])
        .answer(move |operation| match operation {
            Operation::Use { verb, data, .. } => {
                let added = if *verb == Verb::Decrypt {
                    value.wrapping_neg()
                } else {
                    value
                };
                let bytes: Vec<u8> = data.iter().map(|byte| byte.wrapping_add(added)).collect();
                Ok(Outcome::Bytes(bytes.into()))
            }
            other => Err(Error::vendor(other.call(), ck::CKR_FUNCTION_NOT_SUPPORTED)),
        })
}

/// A member whose key has this value, while it is there.
fn member(name: &'static str, value: u8, there: &Arc<AtomicBool>) -> Arc<Supply> {
    let there = Arc::clone(there);
    Supply::new(move || {
        if there.load(Ordering::SeqCst) {
            return Ok(cipher(name, value).build());
        }
        Err(Error::lost("not plugged in"))
    })
}

fn here() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

fn away() -> Arc<AtomicBool> {
    Arc::default()
}

/// The one of these members whose copies an administrator believes.
struct Trusted(Seat);

impl Connector for Trusted {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        self.0.connector.connect()
    }

    fn trusted(&self) -> bool {
        true
    }
}

fn encrypt(pool: &Pool) -> Result<Outcome> {
    let operation = Operation::Use {
        verb: Verb::Encrypt,
        key: secret(0).id.into(),
        mechanism: Mechanism::plain(ck::CKM_AES_ECB),
        data: vec![7; 16].into(),
    };
    pool.execute(&operation, in_seconds(60))
}

fn serving(pool: &Pool) -> Vec<String> {
    let objects = pool.status().objects;
    objects
        .first()
        .map_or_else(Vec::new, |key| key.members.clone())
}

/// Why the key does not serve from a member, once that is decided.
fn reason(pool: &Pool, member: &str) -> String {
    let mut found = None;
    eventually("the proof has ended", || {
        let status = pool.status();
        let replicas = status.objects.iter().flat_map(|key| &key.replicas);
        let mut replicas = replicas.filter(|replica| replica.member == member);
        found = replicas.find_map(|replica| replica.reason.clone());
        found.is_some()
    });
    found.unwrap()
}

fn remembering(folder: &Path) -> Options {
    Options {
        answers: Some(folder.join("answers")),
        ..Options::default()
    }
}

#[test]
fn a_copy_waits_for_the_member_before_it_unless_an_administrator_believes_it() {
    let (there, always) = (away(), here());
    let [one, two] =
        ["one", "two"].map(|name| member(name, 3, if name == "one" { &there } else { &always }));
    let pool = pool(Options::default(), vec![one.seat("one"), two.seat("two")]);
    let why = reason(&pool, "two");
    assert!(
        why.contains("one comes first in the configuration"),
        "{why}"
    );
    assert!(
        why.rsplit_once("; ").unwrap().1.contains("trusted = true"),
        "{why}"
    );
    let refused = encrypt(&pool).unwrap_err();
    assert_eq!(refused.kind(), Kind::Unproved, "{refused}");
    there.store(true, Ordering::SeqCst);
    eventually("both serve", || serving(&pool) == ["one", "two"]);
    encrypt(&pool).unwrap();

    let [one, two] = [member("one", 3, &away()), member("two", 3, &here())];
    let believed = Seat {
        connector: Arc::new(Trusted(two.seat("two"))),
        ..two.seat("two")
    };
    let pool = pool_of(vec![one.seat("one"), believed]);
    eventually("it is believed", || serving(&pool) == ["two"]);
    encrypt(&pool).unwrap();
}

fn pool_of(seats: Vec<Seat>) -> Arc<Pool> {
    pool(Options::default(), seats)
}

#[test]
fn a_member_that_has_shown_that_it_lacks_the_key_is_not_waited_for() {
    let empty = Supply::of(|| FakeToken::builder("empty"));
    let two = member("two", 3, &here());
    let pool = pool_of(vec![empty.seat("empty"), two.seat("two")]);
    eventually("the second one serves", || serving(&pool) == ["two"]);
    empty.last().lose("pulled out");
    two.last().lose("pulled out");
    eventually("it serves again", || {
        two.connections() == 2 && serving(&pool) == ["two"]
    });
    // Nor one that is taken out of the configuration.
    let pool = pool_of(vec![member("one", 3, &away()).seat("one"), two.seat("two")]);
    reason(&pool, "two");
    pool.remove("one").unwrap();
    eventually("it is the first now", || serving(&pool) == ["two"]);
}

/// By what the key has answered when it was compared.
#[test]
fn what_was_compared_once_serves_alone_later_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let there = here();
    let [one, two] = [member("one", 3, &there), member("two", 3, &here())];
    let seats = vec![one.seat("one"), two.seat("two")];
    let first = pool(remembering(folder.path()), seats);
    eventually("both serve", || serving(&first) == ["one", "two"]);
    there.store(false, Ordering::SeqCst);
    one.last().lose("pulled out");
    eventually("one is away", || {
        first.status().seats[0].state == SeatState::BackOff
    });
    two.last().lose("it is connected anew");
    eventually("the other is back", || {
        two.connections() == 2 && serving(&first) == ["two"]
    });
    encrypt(&first).unwrap();
    drop(first);

    for (value, serves) in [(3, true), (4, false)] {
        let two = member("two", value, &here());
        let seats = vec![member("one", 3, &away()).seat("one"), two.seat("two")];
        let later = pool(remembering(folder.path()), seats);
        if serves {
            eventually("it serves alone", || serving(&later) == ["two"]);
            encrypt(&later).unwrap();
        } else {
            let why = reason(&later, "two");
            assert!(why.contains("it is another key"), "{why}");
            assert!(encrypt(&later).is_err());
        }
    }
}

#[test]
fn a_key_that_the_second_member_alone_holds_serves_also_while_the_first_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let two = member("two", 3, &here());
    let empty = Supply::of(|| FakeToken::builder("empty"));
    let seats = vec![empty.seat("empty"), two.seat("two")];
    let first = pool(remembering(folder.path()), seats);
    eventually("the second one serves", || serving(&first) == ["two"]);
    drop(first);
    let away = Supply::new(|| Err(Error::lost("not plugged in")));
    let seats = vec![away.seat("empty"), two.seat("two")];
    let later = pool(remembering(folder.path()), seats);
    eventually("it serves alone", || serving(&later) == ["two"]);
}

/// Two members that were compared, as a pool of them leaves it.
fn compared(folder: &Path) {
    let [one, two] = ["one", "two"].map(|name| member(name, 3, &here()));
    let seats = vec![one.seat("one"), two.seat("two")];
    let pool = pool(remembering(folder), seats);
    eventually("both serve", || serving(&pool) == ["one", "two"]);
}

#[test]
fn the_first_member_is_not_believed_against_what_its_key_has_answered() {
    let folder = tempfile::tempdir().unwrap();
    compared(folder.path());
    let [one, two] = [member("one", 4, &here()), member("two", 3, &here())];
    let seats = vec![one.seat("one"), two.seat("two")];
    let later = pool(remembering(folder.path()), seats);
    eventually("the other serves", || serving(&later) == ["two"]);
    let why = reason(&later, "one");
    assert!(why.contains("it is another key"), "{why}");
    let advice = why.rsplit_once("; ").unwrap().1;
    assert!(
        advice.contains("trusted = true in the [[token]] of one"),
        "{why}"
    );
}

#[test]
fn what_was_exchanged_serves_by_the_administrators_word_and_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    compared(folder.path());
    let one = member("one", 4, &here());
    let believed = Seat {
        connector: Arc::new(Trusted(one.seat("one"))),
        ..one.seat("one")
    };
    let trusting = pool(remembering(folder.path()), vec![believed]);
    eventually("it is believed", || serving(&trusting) == ["one"]);
    drop(trusting);
    let later = pool(remembering(folder.path()), vec![one.seat("one")]);
    eventually("it serves by itself", || serving(&later) == ["one"]);
}
