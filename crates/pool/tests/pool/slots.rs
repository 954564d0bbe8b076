//! Slots that tokens leave and come to.

use std::sync::Arc;

use hsmux_pool::{Options, Pool, SeatState, SeatStatus};
use hsmux_token::sync::{Condvar, Mutex};
use hsmux_token::{Error, Token};

use crate::vault::*;

/// What a reader holds, and whether looking into it takes for ever.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Card,
    Nothing,
    Stuck,
}

/// A token in a slot of this name, and the hand that pulls it.
fn in_slot(slot: &'static str, key: Key) -> (Arc<Supply>, impl Fn(Reader)) {
    let shared = Arc::new((Mutex::new(Reader::Card), Condvar::new()));
    let seen = Arc::clone(&shared);
    let supply = Supply::new(move || {
        let mut reader = seen.0.lock();
        while *reader == Reader::Stuck {
            seen.1.wait(&mut reader);
        }
        match *reader {
            Reader::Card => Ok(honest(slot, key)
                .info(|info| info.slot = Some(slot.to_owned()))
                .build()),
            _ => Err(Error::lost("no token fits")),
        }
    });
    let turn = move |to| {
        *shared.0.lock() = to;
        shared.1.notify_all();
    };
    (supply, turn)
}

fn seat(pool: &Pool, name: &str) -> SeatStatus {
    let seats = pool.status().seats;
    seats.into_iter().find(|seat| seat.name == name).unwrap()
}

fn serves(pool: &Pool, name: &str) -> bool {
    seat(pool, name).state == SeatState::InService
}

#[test]
fn a_token_that_leaves_takes_its_seat_along_and_no_other() {
    let key = Key::new(1);
    let (one, turn) = in_slot("reader A", key);
    let (two, _) = in_slot("reader B", key);
    let fixed = Supply::of(move || honest("fixed", key));
    let seats = vec![one.seat("one"), two.seat("two"), fixed.seat("fixed")];
    let pool = pool(Options::default(), seats);
    assert!(
        ["one", "two", "fixed"]
            .iter()
            .all(|name| serves(&pool, name))
    );

    turn(Reader::Nothing);
    pool.token_left("reader A", "pulled", |member| member != "one");
    assert!(serves(&pool, "one"));
    pool.token_left("reader A", "pulled", |_| true);
    let gone = seat(&pool, "one");
    assert_ne!(gone.state, SeatState::InService);
    assert_eq!(gone.token.unwrap().slot.as_deref(), Some("reader A"));
    assert!(serves(&pool, "two") && serves(&pool, "fixed"));
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
}

#[test]
fn a_token_that_comes_ends_the_rest_of_its_seat() {
    let key = Key::new(1);
    let (one, turn) = in_slot("reader A", key);
    let (two, _) = in_slot("reader B", key);
    let pool = pool(Options::default(), vec![one.seat("one"), two.seat("two")]);
    turn(Reader::Nothing);
    pool.token_left("reader A", "pulled", |_| true);
    eventually("the rests grow", || seat(&pool, "one").attempts >= 3);

    turn(Reader::Stuck);
    pool.token_came("reader A");
    eventually("it is tried", || {
        seat(&pool, "one").state == SeatState::Connecting
    });
    assert!(seat(&pool, "one").attempts < 3);
    turn(Reader::Card);
    eventually("it serves", || serves(&pool, "one"));
    assert!(serves(&pool, "two"));
}

/// Its slot is not known: any may be it.
#[test]
fn a_token_that_was_never_seen_may_come_to_any_slot() {
    let key = Key::new(1);
    let (one, turn) = in_slot("reader A", key);
    turn(Reader::Nothing);
    let pool = pool(Options::default(), vec![one.seat("one")]);
    eventually("the rests grow", || seat(&pool, "one").attempts >= 3);
    turn(Reader::Stuck);
    pool.token_came("reader B");
    eventually("it is tried", || {
        seat(&pool, "one").state == SeatState::Connecting
    });
    assert!(seat(&pool, "one").attempts < 3);
    turn(Reader::Card);
    eventually("it serves", || serves(&pool, "one"));
}

#[test]
fn only_what_can_move_is_watched() {
    let key = Key::new(1);
    let (one, turn) = in_slot("reader A", key);
    assert!(pool(Options::default(), vec![one.seat("one")]).wait_for_slots());
    turn(Reader::Nothing);
    assert!(pool(Options::default(), vec![one.seat("one")]).wait_for_slots());

    let fixed = Supply::of(move || honest("fixed", key));
    let fixed = pool(Options::default(), vec![fixed.seat("fixed")]);
    let pool = Arc::clone(&fixed);
    let waiting = std::thread::spawn(move || pool.wait_for_slots());
    fixed.stop();
    assert!(!waiting.join().unwrap());
    let empty = Pool::start(Options::default(), Vec::new()).unwrap();
    let pool = Arc::clone(&empty);
    let waiting = std::thread::spawn(move || pool.wait_for_slots());
    empty.stop();
    assert!(!waiting.join().unwrap());
}
