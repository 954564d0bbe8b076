//! Members that others change, and connections that become slow or blind while they serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsmux_pool::{Care, Options, Pool, Replica, ReplicaState};
use hsmux_token::fake::FakeToken;
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Operation, Outcome, Result, Token};

use crate::vault::*;
use crate::watched_member::{ALL, Member, be_known, lose_a_key, pace, replaced, slow_down};

fn shown(pool: &Pool, key: Key) -> bool {
    pool.catalogue().get(&key.id()).is_some()
}

#[test]
fn what_others_add_is_served_and_what_they_remove_leaves() {
    let [old, new] = [Key::new(1), Key::new(2)];
    let member = Member::new(ALL, move |_| {
        holding("one", &[(old, old), (new, new)]).objects(vec![old.object()])
    });
    let pool = member.pool();
    old.check(pool.execute(&old.signing(), in_seconds(60)).unwrap());
    member.holds_now(&[old.object(), new.object()]);
    eventually("it is served", || {
        pool.execute(&new.signing(), in_seconds(60)).is_ok()
    });
    member.holds_now(&[new.object()]);
    eventually("it is gone", || !shown(&pool, old));
    let gone = pool.execute(&old.signing(), in_seconds(60)).unwrap_err();
    assert_eq!(gone.kind(), Kind::UnknownObject);
    new.check(pool.execute(&new.signing(), in_seconds(60)).unwrap());
    // Those who serve were asked for their objects once, when they came.
    assert_eq!((member.connections(), member.connection(0).reads()), (1, 1));
}

#[test]
fn what_others_add_is_read_before_it_is_asked_for() {
    let [old, new] = [Key::new(1), Key::new(2)];
    let member = Member::new(ALL, move |_| {
        holding("one", &[(old, old), (new, new)]).objects(vec![old.object()])
    });
    let seats = vec![member.seat("one"), member.seat("one#2")];
    let pool = pool(Options::default(), seats);
    let now = [old.object(), new.object()];
    for connection in &*member.serving.lock() {
        connection.set_objects(now.to_vec());
    }
    member.holds_now(&now);
    eventually("both serve with it", || {
        let catalogue = pool.catalogue();
        let replicas = catalogue.get(&new.id()).map_or(&[][..], |e| &e.replicas);
        let serving = |replica: &&Replica| replica.state == ReplicaState::Serving;
        replicas.iter().filter(serving).count() == 2
    });
    for _ in 0..8 {
        new.check(pool.execute(&new.signing(), in_seconds(60)).unwrap());
    }
    for connection in &*member.serving.lock() {
        assert!(connection.calls() > 0);
        assert_eq!(connection.unread(), 0, "a request waited for a reading");
    }
}

#[test]
fn who_wants_no_care_gets_none() {
    let key = Key::new(1);
    let member = Member::new(Care::default(), move |_| honest("one", key));
    let pool = member.pool();
    member.connection(0).set_pace(pace(key, 20, 32));
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert!(member.looking.lock().is_empty());
}

#[test]
fn a_card_is_left_alone() {
    let key = Key::new(1);
    let member = Member::new(ALL, move |_| {
        honest("one", key).info(|info| info.slot = Some("reader".into()))
    });
    let pool = member.pool();
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert!(member.looking.lock().is_empty());
}

#[test]
fn a_connection_that_does_not_see_a_new_key_is_replaced() {
    let [old, new] = [Key::new(1), Key::new(2)];
    let member = Member::new(ALL, move |number| {
        if number == 0 {
            let blind = holding("one", &[(old, old)]);
            return blind.objects(vec![old.object()]);
        }
        holding("one", &[(old, old), (new, new)])
    });
    let pool = member.pool();
    member.holds_now(&[old.object(), new.object()]);
    eventually("a fresh one serves", || replaced(&pool) == 1);
    eventually("it is served", || {
        pool.execute(&new.signing(), in_seconds(60)).is_ok()
    });
    old.check(pool.execute(&old.signing(), in_seconds(60)).unwrap());
    assert_eq!(member.connections(), 2);
}

#[test]
fn a_probe_that_shows_a_key_that_is_gone_is_replaced_at_once() {
    let [key, gone] = [Key::new(1), Key::new(2)];
    let is_removed = Arc::new(AtomicBool::new(false));
    let removed = Arc::clone(&is_removed);
    let member = Member::new(ALL, move |number| {
        let removed = Arc::clone(&removed);
        let answer = move |operation: &Operation| -> Result<Outcome> {
            match operation {
                Operation::Use {
                    key: used, data, ..
                } if *used == key.id().into() => Ok(Outcome::Bytes(key.sign(data).into())),
                Operation::Use { data, .. } if !removed.load(Ordering::SeqCst) => {
                    Ok(Outcome::Bytes(gone.sign(data).into()))
                }
                _ => Err(Error::token(Kind::UnknownObject, "no such key")),
            }
        };
        let objects = [key, gone].map(Key::object);
        let shown = if number == 0 {
            &objects[..]
        } else {
            &objects[..1]
        };
        FakeToken::builder("one")
            .objects(shown.to_vec())
            .answer(answer)
    });
    let pool = member.pool();
    eventually("both serve, and somebody looks", || {
        let looks = member.looking.lock().len() == 1;
        looks && shown(&pool, key) && shown(&pool, gone)
    });
    member.holds_for_later(&[key.object()]);
    is_removed.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    assert!(pool.execute(&gone.signing(), in_seconds(60)).is_err());
    eventually("another one looks", || member.looking.lock().len() > 1);
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "long before its time"
    );
    eventually("it is gone", || !shown(&pool, gone));
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
}

/// A slow connection signs until `done`.
fn work(pool: &Pool, token: &Arc<FakeToken>, key: Key, done: impl Fn() -> bool) {
    slow_down(std::slice::from_ref(token), key, || {
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
        done()
    });
}

/// The first connection, which was replaced because it is slow after a change of keys.
fn replace_a_slow_one(member: &Member, pool: &Pool, keys @ [key, _]: [Key; 2]) -> Arc<FakeToken> {
    let first = member.connection(0);
    be_known(&first, key);
    lose_a_key(member, pool, keys);
    work(pool, &first, key, || replaced(pool) == 1);
    first
}

#[test]
fn a_connection_that_is_slow_after_a_change_of_keys_is_replaced_and_no_request_fails() {
    let [key, gone] = [1, 2].map(Key::new);
    let member = Member::new(ALL, move |_| holding("one", &[(key, key), (gone, gone)]));
    let pool = member.pool();
    let first = replace_a_slow_one(&member, &pool, [key, gone]);
    let calls = first.calls();
    let answer = submit(&pool, key.signing(), in_seconds(60));
    key.check(answer.recv().unwrap().unwrap());
    assert_eq!(first.calls(), calls);
    assert_eq!(first.aborts(), 0, "it is let go, and finishes what it runs");
}

#[test]
fn a_connection_that_is_slow_without_a_change_of_keys_stays() {
    let key = Key::new(1);
    let member = Member::new(ALL, move |_| honest("one", key));
    let pool = member.pool();
    let first = member.connection(0);
    be_known(&first, key);
    let asked = first.paced();
    work(&pool, &first, key, || first.paced() > asked + 5);
    assert_eq!((replaced(&pool), member.connections()), (0, 1));
}

/// It fails, and the next one sees another state of the token.
#[test]
fn a_change_that_only_another_probe_sees_counts() {
    let keys @ [key, gone] = [1, 2].map(Key::new);
    let member = Member::new(ALL, move |_| holding("one", &[(key, key), (gone, gone)]));
    let pool = member.pool();
    let first = member.connection(0);
    be_known(&first, key);
    eventually("somebody looks", || member.looking.lock().len() == 1);
    member.holds_for_later(&[key.object()]);
    member.looking.lock()[0].abort("it ends");
    eventually("it is gone", || !shown(&pool, keys[1]));
    work(&pool, &first, key, || replaced(&pool) == 1);
}

/// The machine or the token has become slower.
#[test]
fn a_worker_that_is_as_slow_as_the_one_before_stays() {
    let [key, gone] = [1, 2].map(Key::new);
    let member = Member::new(ALL, move |_| holding("one", &[(key, key), (gone, gone)]));
    let pool = member.pool();
    replace_a_slow_one(&member, &pool, [key, gone]);
    let fresh = member.connection(1);
    let asked = fresh.paced();
    work(&pool, &fresh, key, || fresh.paced() > asked + 5);
    member.holds_now(&[key.object(), gone.object()]);
    let asked = fresh.paced();
    work(&pool, &fresh, key, || fresh.paced() > asked + 10);
    assert_eq!((replaced(&pool), member.connections()), (1, 2));
}

#[test]
fn a_fresh_worker_that_holds_another_key_does_not_serve_in_place_of_a_slow_one() {
    let [key, gone, other] = [1, 2, 3].map(Key::new);
    let member = Member::new(ALL, move |number| {
        let real = if number == 0 { key } else { other };
        holding("one", &[(key, real), (gone, gone)])
    });
    let pool = member.pool();
    let first = member.connection(0);
    be_known(&first, key);
    lose_a_key(&member, &pool, [key, gone]);
    work(&pool, &first, key, || member.connections() == 2);
    let fresh = member.connection(1);
    work(&pool, &first, key, || fresh.aborts() == 1);
    assert_eq!(replaced(&pool), 0);
}

/// Operations that run on a replaced connection go on and are answered.
#[test]
fn what_runs_while_a_connection_is_replaced_is_answered() {
    let [old, new] = [Key::new(1), Key::new(2)];
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let member = Member::new(ALL, move |number| {
        let held = Arc::clone(&held);
        let slow = move |operation: &Operation| -> Result<Outcome> {
            match operation {
                Operation::Use { key, data, .. } if *key == old.id().into() => {
                    let long = data.len() == 31;
                    if long && number == 0 {
                        let _ = held.lock().recv();
                    }
                    Ok(Outcome::Bytes(old.sign(&data[..]).into()))
                }
                Operation::Use { key, data, .. } if *key == new.id().into() && number > 0 => {
                    Ok(Outcome::Bytes(new.sign(data).into()))
                }
                _ => Err(Error::token(Kind::UnknownObject, "no such key")),
            }
        };
        let objects = [old, new].map(Key::object);
        let shown = if number == 0 { &objects[..1] } else { &objects };
        // A fake token without latency works on the caller's thread.
        let builder = FakeToken::builder("one").lanes(2).answer(slow);
        builder
            .objects(shown.to_vec())
            .latency(Duration::from_micros(1))
    });
    let pool = member.pool();
    eventually("it is proved", || shown(&pool, old));
    let mut long = old.signing();
    if let Operation::Use { data, .. } = &mut long {
        *data = vec![7; 31].into();
    }
    let running = submit(&pool, long, in_seconds(100));
    member.holds_now(&[old.object(), new.object()]);
    eventually("a fresh one serves", || replaced(&pool) == 1);
    new.check(pool.execute(&new.signing(), in_seconds(60)).unwrap());
    assert!(running.try_recv().is_err(), "it is not over yet");
    release.send(()).unwrap();
    running.recv().unwrap().unwrap();
    assert_eq!(member.connection(0).aborts(), 0);
}

#[test]
fn a_token_that_can_do_more_has_a_fresh_connection() {
    let key = Key::new(1);
    let care = Care {
        look: true,
        ..Care::default()
    };
    let member = Member::new(care, move |number| {
        honest("one", key).lanes(if number == 0 { 1 } else { 3 })
    });
    let pool = member.pool();
    assert_eq!(pool.status().seats[0].lanes, 1);
    member.grown.store(1, Ordering::SeqCst);
    eventually("a fresh one serves", || replaced(&pool) == 1);
    assert_eq!(pool.status().seats[0].lanes, 3);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert_eq!(member.connection(0).aborts(), 0, "it is let go");
}
