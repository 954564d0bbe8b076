//! Callers that go away.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use hsmux_pool::{Claim, ClientConnection, ClientSession, Options, Owner, Pool};
use hsmux_token::{Done, Outcome, Request, Result};

use crate::vault::*;

fn request(key: Key) -> (Request, Receiver<Result<Outcome>>) {
    let (tell, told) = channel();
    let request = Request {
        behalf: None,
        operation: key.signing(),
        deadline: in_seconds(600),
        done: Done::new(move |result| drop(tell.send(result))),
    };
    (request, told)
}

fn claimed(pool: &Pool, key: Key) -> (Claim, Receiver<Result<Outcome>>) {
    let (request, told) = request(key);
    (pool.submit_claimed(request, Owner::Broker(0), None), told)
}

fn asked(connection: &ClientConnection, key: Key) -> Receiver<Result<Outcome>> {
    let (request, told) = request(key);
    connection.submit([(request, None)]);
    told
}

/// A pool of two seats that answer nothing, and what makes the first of them.
fn hanging(key: Key) -> (Arc<Pool>, Arc<Supply>) {
    let one = Supply::of(move || honest("one", key));
    let two = Supply::of(move || honest("two", key));
    let pool = pool(Options::default(), vec![one.seat("one"), two.seat("two")]);
    one.last().hang();
    two.last().hang();
    (pool, one)
}

#[test]
fn what_nobody_waits_for_any_more_leaves_the_queue() {
    let key = Key::new(1);
    let (pool, one) = hanging(key);
    let (claims, told): (Vec<_>, Vec<_>) = (0..40).map(|_| claimed(&pool, key)).unzip();
    let waiting = pool.status().waiting;
    assert!(waiting > 30, "{waiting}");
    let kept = claimed(&pool, key);
    assert_eq!(pool.status().waiting, waiting + 1);
    drop(claims);
    assert_eq!(pool.status().waiting, 1);
    let given_up = told.iter().filter_map(|told| told.try_recv().ok());
    assert_eq!(given_up.filter(Result::is_err).count(), waiting);

    // What ran is nobody's, and does not look for another seat; what is wanted is served by the next connection.
    one.last().lose("the worker was killed");
    key.check(kept.1.recv().unwrap().unwrap());
}

#[test]
fn a_broker_that_fills_the_queue_leaves_places_to_the_gateway() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let options = Options {
        queue: 8,
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one")]);
    one.last().hang();
    let broker: Vec<_> = (0..100).map(|_| claimed(&pool, key)).collect();
    assert_eq!(pool.status().waiting, 8);
    let of_broker = |ended: bool| {
        let told = broker.iter().map(|(_, told)| told.try_recv());
        told.filter(|told| told.is_ok() == ended).count()
    };
    assert!(of_broker(true) > 0);
    let (wanted, told) = request(key);
    let handshake = pool.submit_claimed(wanted, Owner::Gateway, None);
    assert!(
        told.try_recv().is_err(),
        "it waits, and the broker's newest does not"
    );
    assert_eq!((of_broker(true), pool.status().waiting), (1, 8));
    drop(handshake);
}

#[test]
fn what_a_connection_has_asked_for_leaves_the_queue_with_it() {
    let key = Key::new(1);
    let (pool, one) = hanging(key);
    let session = ClientSession::new(Arc::clone(&pool));
    let (going, staying) = (session.connect(), session.connect());
    let told: Vec<_> = (0..40).map(|_| asked(&going, key)).collect();
    let waiting = pool.status().waiting;
    assert!(waiting > 30, "{waiting}");
    let kept = asked(&staying, key);
    assert_eq!(pool.status().waiting, waiting + 1);
    going.end();
    assert_eq!(pool.status().waiting, 1);
    let given_up = told.iter().filter_map(|told| told.try_recv().ok());
    assert_eq!(given_up.filter(Result::is_err).count(), waiting);
    // What comes after its end does not wait either.
    assert!(asked(&going, key).try_recv().unwrap().is_err());
    assert_eq!(pool.status().waiting, 1);

    // What ran is nobody's, and does not look for another seat; what is wanted is served by the next connection.
    one.last().lose("the worker was killed");
    key.check(kept.recv().unwrap().unwrap());
}
