//! What applications see.

use hsmux_pool::{Options, Policy};
use hsmux_token::{
    Attributes, Class, Kind, Made, Mechanism, Object, ObjectId, ObjectRef, Operation, Outcome,
    SessionObject, Token, Verb, ck,
};

use crate::vault::*;

#[test]
fn a_signature_through_the_pool_verifies_on_both_paths() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let pool = pool(Options::default(), vec![one.seat("one")]);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    let answer = submit(&pool, key.signing(), in_seconds(60));
    key.check(answer.recv().unwrap().unwrap());
    let status = pool.status();
    assert_eq!(status.seats[0].unproved, 0);
    assert_eq!(status.objects[0].members, ["one"]);
}

#[test]
fn the_pool_is_one_token_with_a_stable_name() {
    let key = Key::new(1);
    let options = || Options {
        label: "web".into(),
        ..Options::default()
    };
    let one = Supply::of(move || honest("one", key).lanes(2));
    let two = Supply::of(move || honest("two", key).lanes(3));
    let serial = {
        let pool = pool(options(), vec![one.seat("one")]);
        assert_eq!(pool.info().label, "web");
        pool.info().serial.clone()
    };
    let pool = pool(options(), vec![two.seat("two"), one.seat("one")]);
    assert_eq!(pool.info().serial, serial);
    assert_eq!(serial.len(), 16);
    assert_eq!(pool.info().lanes, 5);
    assert_eq!(pool.objects().unwrap().objects.len(), 1);
    assert!(pool.info().mechanism(ck::CKM_ECDSA).is_some());
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let pool = pool(Options::default(), vec![one.seat("one")]);
    let with = |verb, key: ObjectId, kind| {
        let operation = Operation::Use {
            verb,
            key: key.into(),
            mechanism: Mechanism::plain(kind),
            data: vec![0; 32].into(),
        };
        pool.execute(&operation, in_seconds(1)).unwrap_err()
    };
    let error = with(Verb::Sign, Key::new(2).id(), ck::CKM_ECDSA);
    assert_eq!(error.kind(), Kind::UnknownObject);
    let error = with(Verb::Decrypt, key.id(), ck::CKM_ECDSA);
    assert_eq!(error.code(), Some(ck::CKR_KEY_FUNCTION_NOT_PERMITTED));
    let error = with(Verb::Sign, key.id(), ck::CKM_EDDSA);
    assert_eq!(error.kind(), Kind::NoMechanism);
    assert!(error.to_string().contains("CKM_EDDSA"), "{error}");
    let calls = one.last().calls();
    let error = with(Verb::Sign, Key::new(3).id(), ck::CKM_ECDSA);
    assert!(
        error.to_string().starts_with("C_Sign: no private key"),
        "{error}"
    );
    assert_eq!(
        one.last().calls(),
        calls,
        "refused without asking the token"
    );
}

#[test]
fn the_pools_own_keys_are_not_shown() {
    let key = Key::new(1);
    let one = Supply::of(move || {
        let mut hidden = key.object();
        hidden.attributes.set(ck::CKA_LABEL, "hsmux-transport 1");
        honest("one", key).objects(vec![hidden])
    });
    let pool = pool(Options::default(), vec![one.seat("one")]);
    assert!(pool.objects().unwrap().objects.is_empty());
    let error = pool.execute(&key.signing(), in_seconds(1)).unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownObject);
}

#[test]
fn a_read_only_pool_refuses_changes_and_allows_session_objects() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key).answer(|_| Ok(Outcome::Done)));
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one")]);
    let create = |token| Operation::Create {
        template: Attributes::default().with_flag(ck::CKA_TOKEN, token),
        near: None,
    };
    let error = pool.execute(&create(true), in_seconds(1)).unwrap_err();
    assert_eq!(error.kind(), Kind::ReadOnly);
    let error = submit(&pool, create(true), in_seconds(1))
        .recv()
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), Kind::ReadOnly);
    pool.execute(&create(false), in_seconds(60)).unwrap();
}

/// Makes session objects, and knows its own.
fn maker(name: &'static str) -> std::sync::Arc<Supply> {
    Supply::of(move || {
        hsmux_token::fake::FakeToken::builder(name).answer(move |operation| match operation {
            Operation::Create { template, .. } => Ok(Outcome::Objects(vec![Made {
                session: Some(SessionObject {
                    owner: 0,
                    handle: 5,
                }),
                object: Object {
                    id: ObjectId::of_unidentified(Class::DATA, name, b"", b""),
                    attributes: template.clone(),
                },
            }])),
            Operation::Read { object } => {
                let own = ObjectRef::Session(SessionObject {
                    owner: 0,
                    handle: 5,
                });
                assert_eq!(*object, own);
                Ok(Outcome::Bytes(name.as_bytes().to_vec().into()))
            }
            _ => Ok(Outcome::Done),
        })
    })
}

#[test]
fn a_session_object_stays_with_its_connection_and_ends_with_it() {
    let (one, two) = (maker("one"), maker("two"));
    let options = Options {
        policy: Policy::RoundRobin,
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one"), two.seat("two")]);
    let make = || {
        let create = Operation::Create {
            template: Attributes::default(),
            near: None,
        };
        let made = pool
            .execute(&create, in_seconds(60))
            .unwrap()
            .into_objects()
            .unwrap();
        made[0].session.unwrap()
    };
    let read = |session| {
        let object = ObjectRef::Session(session);
        let read = pool.execute(&Operation::Read { object }, in_seconds(60))?;
        Ok::<_, hsmux_token::Error>(read.into_bytes().unwrap())
    };
    let (first, second) = (make(), make());
    assert_ne!(first.owner, second.owner, "round-robin uses both");
    let wrap = Operation::Wrap {
        wrapping: ObjectRef::Session(first),
        mechanism: Mechanism::plain(ck::CKM_AES_KEY_WRAP_PAD),
        key: ObjectRef::Session(second),
    };
    let apart = pool.execute(&wrap, in_seconds(5)).unwrap_err();
    assert_eq!(apart.scope(), hsmux_token::Scope::Request, "{apart}");
    assert_eq!(apart.to_rv(), ck::CKR_KEY_HANDLE_INVALID);
    for _ in 0..10 {
        assert_eq!(read(first).unwrap(), "one");
        assert_eq!(read(second).unwrap(), "two");
    }
    one.last().lose("the worker died");
    eventually("the first seat is connected again", || {
        pool.status().seats[0].state == hsmux_pool::SeatState::InService && one.connections() == 2
    });
    let error = read(first).unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownObject);
    assert_eq!(read(second).unwrap(), "two");
}

#[test]
fn the_epoch_grows_only_with_what_applications_see() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let two = Supply::of(move || honest("two", key));
    let pool = pool(Options::default(), vec![one.seat("one"), two.seat("two")]);
    let epoch = pool.catalogue().epoch;
    two.last().lose("gone for a moment");
    eventually("the second seat is back", || {
        pool.status().objects[0].members.len() == 2 && two.connections() == 2
    });
    assert_eq!(pool.catalogue().epoch, epoch);
    let other = Key::new(2);
    one.last().set_objects(vec![key.object(), other.object()]);
    pool.refresh("one").unwrap();
    // The token does not really hold it: it is not shown.
    assert_eq!(pool.catalogue().epoch, epoch);
    one.last().set_objects(vec![]);
    two.last().set_objects(vec![]);
    pool.refresh("one").unwrap();
    pool.refresh("two").unwrap();
    assert!(pool.catalogue().epoch > epoch);
    assert!(pool.objects().unwrap().objects.is_empty());
}
