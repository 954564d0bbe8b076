//! Session objects of one application live together.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hsmux_pool::{ClientSession, Options, Policy, Pool, SeatState};
use hsmux_token::fake::{Builder, FakeToken};
use hsmux_token::sync::Mutex;
use hsmux_token::{
    Attributes, Blob, Kind, Made, Mechanism, Object, ObjectId, ObjectRef, Operation, Outcome,
    Result, Scope, SessionObject, Token, TokenInfo, ck,
};

use crate::vault::*;

/// Makes session keys, and wraps and derives with its own alone.
fn keeper(name: &'static str) -> Builder {
    let (last, held) = (AtomicU64::new(0), Mutex::new(HashSet::new()));
    FakeToken::builder(name).answer(move |operation| {
        for object in operation.objects() {
            if let ObjectRef::Session(object) = object {
                assert!(object.owner == 0 && held.lock().contains(&object.handle));
            }
        }
        if let Operation::Wrap { .. } | Operation::Random { .. } = operation {
            return Ok(Outcome::Bytes(name.as_bytes().to_vec().into()));
        }
        let handle = last.fetch_add(1, Ordering::Relaxed) + 1;
        held.lock().insert(handle);
        Ok(Outcome::Objects(vec![Made {
            session: Some(SessionObject { owner: 0, handle }),
            object: thing(name),
        }]))
    })
}

/// An object that needs no proof.
fn thing(name: &str) -> Object {
    Object {
        id: ObjectId::of_data(b"", name.as_bytes(), b""),
        attributes: Attributes::default().with_number(ck::CKA_CLASS, ck::CKO_DATA),
    }
}

/// Two that serve in turns.
fn two() -> (Arc<Supply>, Arc<Pool>) {
    let (one, two) = (Supply::of(|| keeper("one")), Supply::of(|| keeper("two")));
    let pool = pool(in_turns(), vec![one.seat("one"), two.seat("two")]);
    (one, pool)
}

fn in_turns() -> Options {
    Options {
        policy: Policy::RoundRobin,
        ..Options::default()
    }
}

fn run(session: &ClientSession, operation: &Operation) -> Result<Outcome> {
    session.execute(operation, in_seconds(60))
}

pub fn generate() -> Operation {
    generate_by(ck::CKM_AES_KEY_GEN)
}

fn generate_by(kind: u64) -> Operation {
    Operation::Generate {
        mechanism: Mechanism::plain(kind),
        template: Attributes::default(),
    }
}

fn derive(key: SessionObject) -> Operation {
    Operation::Derive {
        key: ObjectRef::Session(key),
        mechanism: Mechanism::plain(ck::CKM_ECDH1_DERIVE),
        template: Attributes::default(),
    }
}

fn wrap(wrapping: SessionObject, key: SessionObject) -> Operation {
    Operation::Wrap {
        wrapping: ObjectRef::Session(wrapping),
        mechanism: Mechanism::plain(ck::CKM_AES_KEY_WRAP_PAD),
        key: ObjectRef::Session(key),
    }
}

fn key(made: Result<Outcome>) -> SessionObject {
    made.unwrap().into_objects().unwrap()[0].session.unwrap()
}

fn text(outcome: Result<Outcome>) -> String {
    String::from_utf8(outcome.unwrap().into_bytes().unwrap().to_vec()).unwrap()
}

#[test]
fn session_keys_of_one_client_wrap_each_other_and_derive() {
    let (_, pool) = two();
    let session = ClientSession::new(Arc::clone(&pool));
    let first = key(run(&session, &generate()));
    let second = key(run(&session, &generate()));
    let submitted = submit_to(&session, generate(), in_seconds(60));
    let third = key(submitted.recv().unwrap());
    let derived = key(run(&session, &derive(first)));
    for pair in [first, second, third, derived].windows(2) {
        assert_eq!(text(run(&session, &wrap(pair[0], pair[1]))), "one");
    }
    let random = || text(run(&session, &Operation::Random { len: 1 }));
    assert_ne!(random(), random(), "all else goes where it is free");
}

#[test]
fn client_sessions_are_spread_over_the_seats() {
    let (_, pool) = two();
    let seats: Vec<_> = (0..4)
        .map(|_| {
            let session = ClientSession::new(Arc::clone(&pool));
            let (first, second) = (
                key(run(&session, &generate())),
                key(run(&session, &generate())),
            );
            text(run(&session, &wrap(first, second)))
        })
        .collect();
    assert_eq!(seats, ["one", "two", "one", "two"]);
}

#[test]
fn first_available_puts_all_session_objects_on_one_seat() {
    let (one, two) = (Supply::of(|| keeper("one")), Supply::of(|| keeper("two")));
    let options = Options {
        policy: Policy::FirstAvailable,
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one"), two.seat("two")]);
    for _ in 0..3 {
        let session = ClientSession::new(Arc::clone(&pool));
        let (first, second) = (
            key(run(&session, &generate())),
            key(run(&session, &generate())),
        );
        assert_eq!(text(run(&session, &wrap(first, second))), "one");
    }
}

#[test]
fn keys_asked_for_at_once_live_together_also_while_nobody_is_there() {
    let gate = Arc::new(Mutex::new(()));
    let gated = |name| {
        let gate = Arc::clone(&gate);
        Supply::new(move || {
            drop(gate.lock());
            Ok(keeper(name).latency(Duration::from_millis(2)).build())
        })
    };
    let (one, two) = (gated("one"), gated("two"));
    let pool = pool(in_turns(), vec![one.seat("one"), two.seat("two")]);
    let session = ClientSession::new(Arc::clone(&pool));
    let closed = gate.lock();
    for name in ["one", "two"] {
        pool.park(name, "for a moment").unwrap();
        pool.resume(name).unwrap();
    }
    let ask = |_| submit_to(&session, generate(), in_seconds(60));
    let asked: Vec<_> = (0..20).map(ask).collect();
    drop(closed);
    let keys = asked.into_iter().map(|made| key(made.recv().unwrap()));
    let owners: HashSet<_> = keys.map(|key| key.owner).collect();
    assert_eq!(owners.len(), 1, "{owners:?}");
}

#[test]
fn a_seat_that_dies_takes_its_session_keys_and_another_one_is_chosen() {
    let (one, pool) = two();
    let session = ClientSession::new(Arc::clone(&pool));
    let lost = key(run(&session, &generate()));
    one.last().lose("the worker died");
    let new = key(run(&session, &generate()));
    let error = run(&session, &wrap(lost, new)).unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownObject);
    assert!(
        error.to_string().contains("session object is gone"),
        "{error}"
    );
    eventually("the first seat is connected again", || {
        pool.status().seats[0].state == SeatState::InService && one.connections() == 2
    });
    let newer = key(run(&session, &generate()));
    assert_eq!(newer.owner, new.owner, "the session stays where it went");
    run(&session, &wrap(new, newer)).unwrap();
}

#[test]
fn what_the_chosen_seat_cannot_do_is_done_elsewhere() {
    let limited = Supply::of(|| {
        let only = |info: &mut TokenInfo| info.mechanisms.retain(|m| m.kind == ck::CKM_AES_KEY_GEN);
        keeper("poor").info(only)
    });
    let able = Supply::of(|| keeper("rich").objects(vec![thing("of the rich")]));
    let pool = pool(in_turns(), vec![limited.seat("poor"), able.seat("rich")]);
    let session = ClientSession::new(Arc::clone(&pool));
    let create = |near| {
        let template = Attributes::default();
        key(run(&session, &Operation::Create { template, near })).owner
    };
    let seat = key(run(&session, &generate())).owner;
    let elsewhere = key(run(&session, &generate_by(ck::CKM_GENERIC_SECRET_KEY_GEN)));
    assert_ne!(elsewhere.owner, seat);
    assert_eq!(create(None), seat, "the session does not move");
    let near = thing("of the rich").id.into();
    for near in [ObjectRef::Session(elsewhere), near] {
        assert_eq!(create(Some(near)), elsewhere.owner);
    }
}

#[test]
fn keys_that_want_a_pin_for_each_use_are_refused_before_any_member_is_asked() {
    let (_, pool) = two();
    let session = ClientSession::new(Arc::clone(&pool));
    let always = || Attributes::default().with_flag(ck::CKA_ALWAYS_AUTHENTICATE, true);
    let base = key(run(&session, &generate()));
    let object = ObjectRef::Session(base);
    let mechanism = || Mechanism::plain(ck::CKM_AES_KEY_GEN);
    let asked = [
        Operation::Generate {
            mechanism: mechanism(),
            template: always(),
        },
        Operation::GeneratePair {
            mechanism: mechanism(),
            public: Attributes::default(),
            private: always(),
        },
        Operation::Derive {
            key: object,
            mechanism: mechanism(),
            template: always(),
        },
        Operation::Unwrap {
            unwrapping: object,
            mechanism: mechanism(),
            wrapped: Blob::default(),
            template: always(),
        },
        Operation::Create {
            template: always(),
            near: None,
        },
        Operation::Copy {
            object,
            template: always(),
        },
        Operation::SetAttributes {
            object,
            template: always(),
        },
        Operation::Create {
            template: always().with_flag(ck::CKA_TOKEN, true),
            near: None,
        },
    ];
    for operation in asked {
        let submitted = submit_to(&session, operation.clone(), in_seconds(60));
        for refused in [run(&session, &operation), submitted.recv().unwrap()] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.scope(), Scope::Request, "{refused}");
            assert_eq!(refused.to_rv(), ck::CKR_TEMPLATE_INCONSISTENT, "{refused}");
            assert!(refused.to_string().contains("CKA_ALWAYS_AUTHENTICATE"));
        }
    }
    let seats = pool.status().seats;
    assert!(seats.iter().all(|seat| seat.failed == 0), "{seats:?}");
    let not = Attributes::default().with_flag(ck::CKA_ALWAYS_AUTHENTICATE, false);
    let usual = Operation::Generate {
        mechanism: mechanism(),
        template: not,
    };
    run(&session, &usual).unwrap();
}
