//! Prepared signatures.

use std::time::Instant;

use hsmux_module::ModuleToken;
use hsmux_software::PublicKey;
use hsmux_token::ck::*;
use hsmux_token::{Kind, Mechanism, ObjectId, Operation, Result, Token, Verb};

use crate::fixture::{Run, ec_pair, soon, token};
use crate::keys::with;
use crate::objects::calls_of;

fn sign(key: ObjectId, n: u8) -> Operation {
    with(Verb::Sign, key, Mechanism::plain(CKM_ECDSA), &[n; 32])
}

/// Executes like a worker, then prepares like an idle one.
fn work(token: &ModuleToken, operation: &Operation) -> (Result<Vec<u8>>, Option<Instant>) {
    let mut answer = None;
    token.execute_all(&[(operation.clone(), soon())], &mut |_, result| {
        answer = Some(result.and_then(hsmux_token::Outcome::into_bytes));
    });
    let signed = answer.unwrap().map(|bytes| bytes.to_vec());
    (signed, token.make_ready(operation))
}

/// Repeats until a signature is prepared.
fn expect(token: &ModuleToken, operation: &Operation) -> Instant {
    let end = soon();
    loop {
        if let (_, Some(until)) = work(token, operation) {
            return until;
        }
        assert!(Instant::now() < end, "none was made ready");
    }
}

/// Counts the prepared signatures that end after their time.
fn discarded(token: &ModuleToken, until: Instant) -> usize {
    while Instant::now() < until {
        std::thread::yield_now();
    }
    calls_of("C_CloseSession", || token.discard_ready())
}

#[test]
fn a_signature_that_was_expected_is_made_where_it_was_begun() {
    let token = token("expected");
    let mut pair = token.made(ec_pair(1));
    let (key, public) = (pair.remove(1).object.id, pair.remove(0).object);
    let public = PublicKey::from_attributes(&public.attributes).unwrap();
    assert_eq!(work(&token, &sign(key, 0)).1, None, "the first of its kind");
    let until = expect(&token, &sign(key, 0));
    let mut signed = None;
    token.execute_all(&[(sign(key, 9), soon())], &mut |_, result| {
        signed = Some(result.unwrap().into_bytes().unwrap());
    });
    // It was the prepared one: none is left to end.
    assert_eq!(discarded(&token, until), 0);
    let raw = Mechanism::plain(CKM_ECDSA);
    public.verify(&raw, &[9; 32], &signed.unwrap()).unwrap();
}

#[test]
fn what_nobody_asks_for_is_let_go() {
    let token = token("not-asked-for");
    let key = token.made(ec_pair(1)).remove(1).object.id;
    let until = expect(&token, &sign(key, 0));
    assert_eq!(calls_of("C_CloseSession", || token.discard_ready()), 0);
    assert_eq!(discarded(&token, until), 1);
    assert_eq!(discarded(&token, until), 0);
}

#[test]
fn a_key_that_is_destroyed_signs_no_more() {
    let token = token("expected-destroyed");
    let key = token.made(ec_pair(1)).remove(1).object.id;
    expect(&token, &sign(key, 0));
    token
        .run(Operation::Destroy { object: key.into() })
        .unwrap();
    let refused = work(&token, &sign(key, 0)).0.unwrap_err();
    assert_eq!(refused.kind(), Kind::UnknownObject, "{refused}");
}

/// Another operation is served in between; a prepared session does not block it.
#[test]
fn another_operation_may_come_first() {
    let token = token("expected-other");
    let keys = [1, 2].map(|id| token.made(ec_pair(id)).remove(1).object.id);
    for n in 0..20 {
        expect(&token, &sign(keys[0], n));
        assert_eq!(work(&token, &sign(keys[1], n)).0.unwrap().len(), 64);
    }
}

/// More keys than prepared signatures: expired ones make room, even without a pause.
#[test]
fn a_fifth_key_is_expected_once_others_have_waited_for_their_time() {
    let token = token("expected-many");
    for id in 1..=5 {
        let key = token.made(ec_pair(id)).remove(1).object.id;
        expect(&token, &sign(key, id));
    }
}
