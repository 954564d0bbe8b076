//! Requests and keys move to another member, or to the same member when it is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hsmux_pool::{Options, Policy};
use hsmux_token::fake::FakeToken;
use hsmux_token::{Error, Mechanism, Operation, Outcome, Token, Verb, ck};

use crate::vault::*;

fn in_order() -> Options {
    Options {
        policy: Policy::FirstAvailable,
        ..Options::default()
    }
}

/// Enciphers by adding 3, and deciphers.
fn cipher(name: &'static str) -> Arc<Supply> {
    Supply::of(move || {
        FakeToken::builder(name)
            .objects(vec![secret(0)])
            .answer(|operation| match operation {
                Operation::Use { verb, data, .. } => {
                    let added: u8 = if *verb == Verb::Decrypt { 253 } else { 3 };
                    let bytes: Vec<u8> = data.iter().map(|byte| byte.wrapping_add(added)).collect();
                    Ok(Outcome::Bytes(bytes.into()))
                }
                other => Err(Error::vendor(other.call(), ck::CKR_FUNCTION_NOT_SUPPORTED)),
            })
    })
}

#[test]
fn both_ways_of_a_cipher_move_on_in_flight() {
    for (verb, answered) in [(Verb::Encrypt, 10), (Verb::Decrypt, 4)] {
        let (one, two) = (cipher("one"), cipher("two"));
        let pool = pool(in_order(), vec![one.seat("one"), two.seat("two")]);
        eventually("both serve", || {
            pool.status().objects[0].members == ["one", "two"]
        });
        let operation = Operation::Use {
            verb,
            key: secret(0).id.into(),
            mechanism: Mechanism::with_bytes(ck::CKM_AES_CBC, vec![0; 16]),
            data: vec![7; 16].into(),
        };
        one.last().hang();
        let answer = submit(&pool, operation, in_seconds(60));
        eventually("it runs on the first", || {
            pool.status().seats[0].in_flight == 1
        });
        one.last().lose("the worker was killed");
        let bytes = answer.recv().unwrap().unwrap().into_bytes().unwrap();
        assert_eq!(bytes[..], [answered; 16], "{verb:?}");
    }
}

/// The proofs of a token end with its connection.
#[test]
fn a_member_that_comes_back_with_another_key_does_not_serve_it() {
    let (key, other) = (Key::new(1), Key::new(9));
    let connections = Arc::new(AtomicUsize::new(0));
    let one = Supply::of(move || {
        let first = connections.fetch_add(1, Ordering::SeqCst) == 0;
        holding("one", &[(key, if first { key } else { other })])
    });
    let two = Supply::of(move || honest("two", key));
    let pool = pool(in_order(), vec![one.seat("one"), two.seat("two")]);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert_eq!(pool.status().objects[0].members, ["one", "two"]);
    one.last().lose("pulled out");
    eventually("it is back", || {
        // None of what is asked meanwhile is signed by the other key.
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
        one.connections() == 2 && pool.status().objects[0].replicas[0].state == "unproved"
    });
    let status = pool.status();
    assert_eq!(status.objects[0].members, ["two"]);
    let reason = status.objects[0].replicas[0].reason.clone();
    assert!(reason.is_some_and(|reason| reason.contains("another key")));
}
