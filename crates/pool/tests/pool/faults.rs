//! Tokens that fail, lie, hang and die, one request at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hsmux_pool::{Options, Policy};
use hsmux_token::fake::FakeToken;
use hsmux_token::{Attributes, Error, Kind, Mechanism, Operation, Outcome, Scope, Token, Verb, ck};

use crate::vault::*;

fn in_order() -> Options {
    Options {
        policy: Policy::FirstAvailable,
        ..Options::default()
    }
}

/// Two honest members; the first is asked first.
fn two(key: Key) -> (Arc<Supply>, Arc<Supply>, Arc<hsmux_pool::Pool>) {
    let one = Supply::of(move || honest("one", key));
    let two = Supply::of(move || honest("two", key));
    let pool = pool(in_order(), vec![one.seat("one"), two.seat("two")]);
    assert_eq!(pool.status().objects[0].members, ["one", "two"]);
    (one, two, pool)
}

#[test]
fn a_request_moves_on_when_a_token_fails() {
    let key = Key::new(1);
    let (one, two, pool) = two(key);
    for error in [
        Error::vendor("C_Sign", ck::CKR_GENERAL_ERROR),
        Error::vendor("C_Sign", ck::CKR_DEVICE_ERROR),
    ] {
        let before = two.last().calls();
        // The failure may hit a proof instead, which the one before has made necessary.
        eventually("the request moves on to the second", || {
            one.last().fail(error.clone(), 1);
            key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
            two.last().calls() > before
        });
        eventually("the first serves again", || {
            pool.status().objects[0].members.len() == 2
        });
    }
    // If the first member was busy with a proof, the failure still waits for its request.
    eventually("CKR_DEVICE_ERROR ends the connection", || {
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
        one.connections() >= 2
    });
}

#[test]
fn a_submitted_request_moves_on_in_flight() {
    let key = Key::new(1);
    let (one, _two, pool) = two(key);
    one.last().hang();
    let answer = submit(&pool, key.signing(), in_seconds(60));
    eventually("it runs on the first", || {
        pool.status().seats[0].in_flight == 1
    });
    one.last().lose("the worker was killed");
    key.check(answer.recv().unwrap().unwrap());
}

#[test]
fn the_callers_mistakes_are_not_tried_elsewhere() {
    let key = Key::new(1);
    let (one, two, pool) = two(key);
    let before = two.last().calls();
    one.last()
        .fail(Error::vendor("C_Sign", ck::CKR_DATA_LEN_RANGE), 1);
    let error = pool.execute(&key.signing(), in_seconds(5)).unwrap_err();
    assert_eq!(error.code(), Some(ck::CKR_DATA_LEN_RANGE));
    assert_eq!(error.scope(), Scope::Request);
    assert!(error.to_string().starts_with("one: C_Sign"), "{error}");
    assert_eq!(two.last().calls(), before);
}

#[test]
fn each_replica_is_asked_once_and_then_the_pool_has_failed() {
    let key = Key::new(1);
    let (one, two, pool) = two(key);
    let before = (one.last().calls(), two.last().calls());
    let (first, second) = (one.last(), two.last());
    first.fail(Error::vendor("C_Sign", ck::CKR_DEVICE_REMOVED), usize::MAX);
    second.fail(Error::vendor("C_Sign", ck::CKR_DEVICE_REMOVED), usize::MAX);
    let error = pool.execute(&key.signing(), in_seconds(5)).unwrap_err();
    assert_eq!(error.scope(), Scope::Pool);
    assert_eq!(error.code(), Some(ck::CKR_DEVICE_REMOVED));
    assert_eq!(
        (first.calls(), second.calls()),
        (before.0 + 1, before.1 + 1)
    );
}

#[test]
fn what_is_not_repeatable_is_not_repeated() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let make = move |name: &'static str| {
        let calls = Arc::clone(&counted);
        Supply::of(move || {
            let calls = Arc::clone(&calls);
            FakeToken::builder(name).answer(move |_| {
                calls.fetch_add(1, Ordering::SeqCst);
                Err(Error::vendor("C_CreateObject", ck::CKR_GENERAL_ERROR))
            })
        })
    };
    let pool = pool(
        in_order(),
        vec![make("one").seat("one"), make("two").seat("two")],
    );
    let create = Operation::Create {
        template: Attributes::default(),
        near: None,
    };
    let error = pool.execute(&create, in_seconds(5)).unwrap_err();
    assert_eq!(error.code(), Some(ck::CKR_GENERAL_ERROR));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// How many of three seats are asked for a decryption at which each fails in a soft way; the last word is
/// whether all that they were asked was that, so that none was proved anew.
fn asked_to_decrypt(mechanism: Mechanism) -> (usize, bool) {
    let calls = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let make = |name: &'static str| {
        let calls = Arc::clone(&calls);
        Supply::of(move || {
            let calls = Arc::clone(&calls);
            FakeToken::builder(name)
                .objects(vec![secret(1)])
                .answer(move |operation| match operation {
                    Operation::Use {
                        verb: Verb::Decrypt,
                        data,
                        ..
                    } if data.len() == 48 => {
                        calls[0].fetch_add(1, Ordering::SeqCst);
                        Err(Error::vendor("C_Decrypt", ck::CKR_GENERAL_ERROR))
                    }
                    Operation::Use { data, .. } => {
                        calls[1].fetch_add(1, Ordering::SeqCst);
                        Ok(Outcome::Bytes(data.clone()))
                    }
                    other => Err(Error::vendor(other.call(), ck::CKR_FUNCTION_NOT_SUPPORTED)),
                })
        })
    };
    let seats = ["one", "two", "three"].map(|name| make(name).seat(name));
    // Without threads of its own the pool proves where it suspects.
    let options = Options {
        threads: false,
        ..in_order()
    };
    let pool = pool(options, seats.to_vec());
    let decrypt = Operation::Use {
        verb: Verb::Decrypt,
        key: secret(1).id.into(),
        mechanism,
        data: vec![0; 48].into(),
    };
    let before = calls[1].load(Ordering::SeqCst);
    let error = pool.execute(&decrypt, in_seconds(5)).unwrap_err();
    assert_eq!(error.code(), Some(ck::CKR_GENERAL_ERROR));
    let [decrypted, proved] = [&calls[0], &calls[1]].map(|calls| calls.load(Ordering::SeqCst));
    (decrypted, proved == before)
}

#[test]
fn a_soft_failure_of_decrypt_is_tried_once_more_and_is_then_the_answer() {
    let aes = Mechanism::with_bytes(ck::CKM_AES_CBC, vec![0; 16]);
    assert_eq!(asked_to_decrypt(aes), (2, false));
}

/// Bad padding must cost what good padding does.
#[test]
fn a_soft_failure_of_pkcs1_is_the_answer_and_raises_no_suspicion() {
    let pkcs1 = Mechanism::plain(ck::CKM_RSA_PKCS);
    assert_eq!(asked_to_decrypt(pkcs1), (1, true));
}

#[test]
fn a_false_key_does_not_serve_and_says_so() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let two = Supply::of(move || holding("two", &[(key, Key::new(9))]));
    let pool = pool(in_order(), vec![two.seat("two"), one.seat("one")]);
    for _ in 0..20 {
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    }
    let status = pool.status();
    assert_eq!(status.objects[0].members, ["one"]);
    assert_eq!(status.seats[0].unproved, 1);
    let replica = &status.objects[0].replicas[0];
    assert_eq!(replica.state, "unproved");
    assert!(
        replica.reason.as_ref().unwrap().contains("another key"),
        "{replica:?}"
    );
}

#[test]
fn a_false_key_alone_is_no_key() {
    let key = Key::new(1);
    let two = Supply::of(move || holding("two", &[(key, Key::new(9))]));
    let pool = pool(in_order(), vec![two.seat("two")]);
    assert!(pool.objects().unwrap().objects.is_empty());
    let error = pool.execute(&key.signing(), in_seconds(5)).unwrap_err();
    assert_eq!(error.kind(), Kind::Unproved);
    assert!(error.to_string().contains("two: "), "{error}");
}

/// Enciphers by adding its value.
fn cipher(name: &'static str, value: u8) -> Arc<Supply> {
    Supply::of(move || {
        FakeToken::builder(name)
            .objects(vec![secret(0)])
            .answer(move |operation| match operation {
                Operation::Use { verb, data, .. } => {
                    let sign = if *verb == Verb::Decrypt {
                        value.wrapping_neg()
                    } else {
                        value
                    };
                    let bytes: Vec<u8> = data.iter().map(|byte| byte.wrapping_add(sign)).collect();
                    Ok(Outcome::Bytes(bytes.into()))
                }
                other => Err(Error::vendor(other.call(), ck::CKR_FUNCTION_NOT_SUPPORTED)),
            })
    })
}

#[test]
fn of_secret_keys_the_first_in_the_configuration_is_trusted() {
    let seats = vec![
        cipher("one", 3).seat("one"),
        cipher("two", 4).seat("two"),
        cipher("three", 3).seat("three"),
    ];
    let pool = pool(in_order(), seats);
    let status = pool.status();
    assert_eq!(status.objects[0].members, ["one", "three"]);
    let reason = status.objects[0].replicas[1].reason.clone().unwrap();
    assert!(
        reason.contains("another key than the one on one"),
        "{reason}"
    );
}

#[test]
fn a_secret_key_is_not_compared_between_workers_of_one_token() {
    let second = cipher("one", 3);
    let come = Arc::clone(&second);
    let first = Supply::new(move || {
        // The other one has read its keys, and waits for this one's.
        eventually("the second has come", || {
            come.connections() == 1 && come.last().reads() == 1
        });
        Ok(FakeToken::builder("one").objects(vec![secret(0)]).build())
    });
    let seats = vec![first.seat("one"), second.seat("one#2")];
    let pool = pool(in_order(), seats);
    eventually("both serve with it", || {
        let replicas = &pool.status().objects[0].replicas;
        replicas.iter().all(|replica| replica.state == "serving")
    });
    assert_eq!((first.last().calls(), second.last().calls()), (0, 0));
}

#[test]
fn a_key_deleted_behind_our_back_leaves_and_the_rest_serve() {
    let key = Key::new(1);
    let (one, _two, pool) = two(key);
    let gone = Error::request(Kind::UnknownObject, "C_Sign: no such key");
    one.last().fail(gone, usize::MAX);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    let status = pool.status();
    assert_eq!(status.objects[0].members, ["two"]);
    assert!(
        status.seats[0]
            .last_error
            .as_ref()
            .unwrap()
            .contains("no such key")
    );
    let calls = one.last().calls();
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert_eq!(one.last().calls(), calls);
}

#[test]
fn a_token_that_hangs_is_ended_and_its_request_moves_on() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let two = Supply::of(move || honest("two", key));
    let mut first = one.seat("one");
    first.timeout = Duration::from_millis(500);
    let pool = pool(in_order(), vec![first, two.seat("two")]);
    let hung = one.last();
    hung.hang();
    let answer = submit(&pool, key.signing(), in_seconds(60));
    key.check(answer.recv().unwrap().unwrap());
    eventually("the connection was ended", || hung.aborts() > 0);
    eventually("it is connected again", || one.connections() >= 2);

    eventually("it serves again", || {
        pool.status().objects[0].members.len() == 2
    });
    let hung = one.last();
    hung.hang();
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    eventually("the connection was ended", || hung.aborts() > 0);
}

#[test]
fn a_caller_is_answered_at_its_deadline_while_the_token_is_still_at_it() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let pool = pool(in_order(), vec![one.seat("one")]);
    let token = one.last();
    token.hang();
    let asked = Instant::now();
    let answer = submit(&pool, key.signing(), asked + Duration::from_millis(60));
    let error = answer.recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Deadline);
    assert!(asked.elapsed() < Duration::from_secs(30));
    assert_eq!(pool.status().seats[0].in_flight, 1, "the lane stays taken");
    token.heal();
    eventually("the lane is free", || pool.status().seats[0].in_flight == 0);
    assert_eq!(token.aborts(), 0);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
}

#[test]
fn a_full_queue_says_busy_at_once_with_a_hint() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let options = Options {
        queue: 3,
        ..in_order()
    };
    let pool = pool(options, vec![one.seat("one")]);
    let token = one.last();
    token.hang();
    let answers: Vec<_> = (0..4)
        .map(|_| submit(&pool, key.signing(), in_seconds(60)))
        .collect();
    assert_eq!(pool.status().waiting, 3);
    let error = submit(&pool, key.signing(), in_seconds(60))
        .recv()
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    assert!(error.retry_after().is_some());
    token.heal();
    for answer in answers {
        key.check(answer.recv().unwrap().unwrap());
    }
}

#[test]
fn waiting_requests_are_answered_at_their_deadline() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let pool = pool(in_order(), vec![one.seat("one")]);
    let token = one.last();
    token.hang();
    let long = submit(&pool, key.signing(), in_seconds(60));
    let short: Vec<_> = (1..=5)
        .map(|n| {
            submit(
                &pool,
                key.signing(),
                Instant::now() + Duration::from_millis(20 * n),
            )
        })
        .collect();
    let begun = Instant::now();
    let waited = pool.execute(&key.signing(), begun + Duration::from_millis(50));
    assert_eq!(waited.unwrap_err().kind(), Kind::Deadline);
    assert!(begun.elapsed() >= Duration::from_millis(50));
    for answer in short {
        assert_eq!(answer.recv().unwrap().unwrap_err().kind(), Kind::Deadline);
    }
    assert_eq!(pool.status().waiting, 0);
    token.heal();
    key.check(long.recv().unwrap().unwrap());
}
