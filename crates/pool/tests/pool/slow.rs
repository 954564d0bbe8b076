//! A token that does one thing at a time, and takes its time for it.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use hsmux_pool::{Options, Pool, Seat};
use hsmux_replicate::{self as replicate, Hold};
use hsmux_token::fake::FakeToken;
use hsmux_token::sync::{Condvar, Mutex};
use hsmux_token::{
    Attributes, Batch, Done, Error, Made, Mechanism, Operation, Outcome, Request, Token, ck,
};

use crate::vault::*;

/// What a vendor's lock may do at its worst: who comes last goes first.
#[derive(Default)]
struct Unfair {
    /// Who is at it, and the numbers of those that wait.
    state: Mutex<(bool, Vec<u64>, u64)>,
    changed: Condvar,
}

impl Unfair {
    fn work(&self, time: Duration) {
        let mut state = self.state.lock();
        state.2 += 1;
        let me = state.2;
        state.1.push(me);
        while state.0 || state.1.last() != Some(&me) {
            self.changed.wait(&mut state);
        }
        state.1.pop();
        state.0 = true;
        drop(state);
        std::thread::sleep(time);
        self.state.lock().0 = false;
        self.changed.notify_all();
    }
}

/// How long the card takes for a key.
const KEY: Duration = Duration::from_secs(5);

/// A card that takes so long for a signature.
fn card(signature: Duration) -> (Arc<Supply>, Key) {
    let key = Key::new(1);
    let card = Supply::of(move || {
        let lock = Unfair::default();
        let made = || {
            let (session, object) = (None, secret(1));
            Ok(Outcome::Objects(vec![Made { session, object }]))
        };
        FakeToken::builder("card")
            .objects(vec![key.object()])
            .lanes(4)
            .latency(Duration::from_millis(1))
            .answer(move |operation| match operation {
                Operation::Use { data, .. } => {
                    lock.work(signature);
                    Ok(Outcome::Bytes(key.sign(data).into()))
                }
                Operation::Generate { .. } => {
                    lock.work(KEY);
                    made()
                }
                Operation::Read { .. } => made(),
                other => Err(Error::vendor(other.call(), ck::CKR_FUNCTION_NOT_SUPPORTED)),
            })
    });
    (card, key)
}

/// A pool of one card.
fn one_card(timeout: Duration, signature: Duration) -> (Arc<Pool>, Arc<Supply>, Key) {
    let (card, key) = card(signature);
    let seat = Seat {
        timeout,
        ..card.seat("card")
    };
    let pool = pool(Options::default(), vec![seat]);
    eventually("the key has proved itself", || {
        pool.catalogue().get(&key.id()).is_some()
    });
    (pool, card, key)
}

/// Asks for so many signatures at once; in which order they came.
fn answered(pool: &Pool, key: Key, count: usize) -> Vec<usize> {
    let (tell, told) = channel();
    let requests = (0..count).map(|number| {
        let tell = tell.clone();
        Request {
            behalf: None,
            operation: key.signing(),
            deadline: in_seconds(600),
            done: Done::new(move |result| drop(tell.send((number, result)))),
        }
    });
    pool.submit(requests.collect::<Batch>());
    let each = (0..count).map(|_| {
        let (number, result) = told.recv().unwrap();
        key.check(result.unwrap());
        number
    });
    each.collect()
}

#[test]
fn a_slow_token_is_not_taken_to_hang() {
    let (pool, card, key) = one_card(Duration::from_millis(2500), Duration::from_millis(700));
    // The last of four is answered after 2.8 seconds.
    assert_eq!(answered(&pool, key, 5).len(), 5);
    assert_eq!((card.last().aborts(), card.connections()), (0, 1));
}

#[test]
fn nobody_starves_behind_who_came_later() {
    let (pool, card, key) = one_card(Duration::from_secs(4), Duration::from_millis(50));
    let order = answered(&pool, key, 120);
    let last_of_the_first = order.iter().rposition(|number| *number < 4);
    assert!(last_of_the_first < Some(60), "{order:?}");
    assert_eq!((card.last().aborts(), card.connections()), (0, 1));
}

#[test]
fn a_member_that_is_parked_finishes_what_it_has_begun() {
    let (pool, card, key) = one_card(Duration::from_millis(2500), Duration::from_millis(700));
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| answered(&pool, key, 4));
        eventually("all run", || pool.status().seats[0].in_flight == 4);
        pool.park("card", "it is parked").unwrap();
        assert_eq!(asked.join().unwrap().len(), 4);
    });
    assert_eq!(card.connections(), 1);
}

#[test]
fn nothing_hangs_behind_the_making_of_a_key() {
    let (card, key) = card(Duration::from_millis(1));
    let state = tempfile::tempdir().unwrap();
    let options = Options {
        state: state.path().to_owned(),
        ..Options::default()
    };
    let seat = Seat {
        timeout: KEY / 2,
        ..card.seat("card")
    };
    let (pool, _writer) = replicate::start(options, vec![seat], Hold::Always, None).unwrap();
    eventually("the key has proved itself", || {
        pool.catalogue().get(&key.id()).is_some()
    });
    let template = Attributes::default().with_flag(ck::CKA_TOKEN, true);
    let made = submit(
        &pool,
        Operation::Generate {
            mechanism: Mechanism::plain(ck::CKM_AES_KEY_GEN),
            template,
        },
        in_seconds(600),
    );
    eventually("it is being made", || pool.status().seats[0].in_flight == 1);
    answered(&pool, key, 4);
    made.recv().unwrap().unwrap();
    assert_eq!((card.last().aborts(), card.connections()), (0, 1));
}
