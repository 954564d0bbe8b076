//! Large keys count in their owner's share by the time that they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use hsmux_pool::{ClientSession, Options, Owner};
use hsmux_token::fake::{Builder, FakeToken};
use hsmux_token::{
    Attributes, Batch, Blob, Class, Done, Made, Mechanism, Object, ObjectId, ObjectRef, Operation,
    Outcome, Request, SessionObject, Token, Verb, ck,
};

use crate::vault::*;

/// As many as each of two owners asks for.
const EACH: usize = 40;

/// A public key of RSA of so many bits, and with as long an exponent: it needs no proof.
fn key(bits: usize) -> Object {
    let name = bits.to_string();
    Object {
        id: ObjectId::of_public_key(Class::PUBLIC_KEY, name.as_bytes()),
        attributes: modulus(bits),
    }
}

fn modulus(bits: usize) -> Attributes {
    Attributes::default()
        .with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY)
        .with(ck::CKA_MODULUS, vec![0xff; bits / 8])
}

/// Holds two such keys, and makes session keys by their templates.
fn token() -> Builder {
    let last = AtomicU64::new(0);
    FakeToken::builder("one")
        .latency(Duration::from_micros(100))
        .objects(vec![key(2048), key(8192)])
        .answer(move |operation| match operation {
            Operation::Create { template, .. } => {
                let handle = last.fetch_add(1, Ordering::Relaxed) + 1;
                let session = Some(SessionObject { owner: 0, handle });
                let object = Object {
                    id: key(0).id,
                    attributes: template.clone(),
                };
                Ok(Outcome::Objects(vec![Made { session, object }]))
            }
            _ => Ok(Outcome::Bytes(Blob::from(vec![0]))),
        })
}

fn session_key(session: &ClientSession, bits: usize) -> ObjectRef {
    let create = Operation::Create {
        template: modulus(bits),
        near: None,
    };
    let made = session.execute(&create, in_seconds(60)).unwrap();
    let made = made.into_objects().unwrap();
    ObjectRef::Session(made[0].session.unwrap())
}

/// How many operations of the first owner are done before the last one of the second.
fn before_the_last(keys: impl Fn(&ClientSession, usize) -> ObjectRef) -> usize {
    let supply = Supply::of(token);
    let pool = pool(Options::default(), vec![supply.seat("one")]);
    let sessions = [1, 2].map(|uid| ClientSession::of(Arc::clone(&pool), Owner::User(uid)));
    let keys = [keys(&sessions[0], 8192), keys(&sessions[1], 2048)];
    supply.last().hang();
    let (tell, told) = channel();
    for _ in 0..EACH {
        for owner in 0..2 {
            let tell = tell.clone();
            let operation = Operation::Use {
                verb: Verb::Encrypt,
                key: keys[owner],
                mechanism: Mechanism::plain(ck::CKM_RSA_PKCS),
                data: vec![7; 32].into(),
            };
            sessions[owner].submit(Batch::from_iter([Request {
                behalf: None,
                operation,
                deadline: in_seconds(60),
                done: Done::new(move |result| {
                    result.unwrap();
                    tell.send(owner).unwrap();
                }),
            }]));
        }
    }
    drop(tell);
    supply.last().heal();
    let order: Vec<_> = told.iter().collect();
    assert_eq!(order.len(), 2 * EACH);
    let last = order.iter().rposition(|owner| *owner == 1).unwrap();
    order[..last].iter().filter(|owner| **owner == 0).count()
}

/// One of 8,192 bits counts for 64 of 2,048. Some have begun before the others waited.
#[test]
fn operations_with_a_large_session_key_count_by_the_time_that_they_take() {
    let before = before_the_last(session_key);
    assert!(before <= 6, "{before}");
    let alike = before_the_last(|session, _| session_key(session, 2048));
    assert!(alike >= EACH - 2, "{alike}");
}

#[test]
fn so_do_those_with_a_large_key_of_the_token() {
    let before = before_the_last(|_, bits| key(bits).id.into());
    assert!(before <= 6, "{before}");
}
