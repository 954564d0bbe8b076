//! A panic is the trouble of one seat, or of one round: what comes after it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hsmux_pool::{Options, Seat, SeatState};
use hsmux_token::{Batch, Done, Kind, Request, Token};

use crate::vault::*;
use crate::watched_member::{ALL, Member};

#[test]
fn a_connector_that_panics_is_a_failed_attempt() {
    let key = Key::new(1);
    let attempts = AtomicUsize::new(0);
    let one = Supply::new(move || {
        assert!(attempts.fetch_add(1, Ordering::SeqCst) > 1, "not yet");
        Ok(honest("one", key).build())
    });
    let pool = pool(Options::default(), vec![one.seat("one")]);
    let seat = &pool.status().seats[0];
    let said = seat.last_error.as_deref().unwrap_or_default();
    assert!(said.contains("ended in a panic"), "{seat:?}");
    eventually("it is connected at the third attempt", || {
        pool.status().seats[0].state == SeatState::InService
    });
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
}

#[test]
fn a_proof_that_panics_has_the_seat_connected_anew() {
    let key = Key::new(1);
    let attempts = Arc::new(AtomicUsize::new(0));
    let one = Supply::of(move || {
        let first = attempts.fetch_add(1, Ordering::SeqCst) == 0;
        let token = honest("one", key);
        if first {
            return token.answer(|_| panic!("nobody expects that of a token"));
        }
        token
    });
    // Otherwise the connection is ended because it hangs.
    let seat = Seat {
        timeout: Duration::from_secs(600),
        ..one.seat("one")
    };
    let pool = pool(Options::default(), vec![seat]);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert_eq!(one.connections(), 2);
}

#[test]
fn the_keeper_keeps_deadlines_after_a_panic() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let pool = pool(Options::default(), vec![one.seat("one")]);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    one.last().hang();
    let soon = || std::time::Instant::now() + Duration::from_millis(50);
    pool.submit(Batch::from_buf([Request {
        behalf: None,
        operation: key.signing(),
        deadline: soon(),
        done: Done::new(|_| panic!("who is told that it is too late")),
    }]));
    for _ in 0..2 {
        let late = submit(&pool, key.signing(), soon());
        let told = late.recv_timeout(Duration::from_secs(10)).expect("told");
        assert_eq!(told.unwrap_err().kind(), Kind::Deadline);
    }
}

#[test]
fn a_member_is_looked_after_when_a_look_has_ended_in_a_panic() {
    let [old, new] = [Key::new(1), Key::new(2)];
    let made = AtomicUsize::new(0);
    let member = Member::new(ALL, move |_| {
        // The first one serves.
        assert!(made.fetch_add(1, Ordering::SeqCst) != 1, "the first look");
        holding("one", &[(old, old), (new, new)]).objects(vec![old.object()])
    });
    let pool = member.pool();
    old.check(pool.execute(&old.signing(), in_seconds(60)).unwrap());
    member.holds_now(&[old.object(), new.object()]);
    eventually("what others have added is served", || {
        pool.execute(&new.signing(), in_seconds(60)).is_ok()
    });
}
