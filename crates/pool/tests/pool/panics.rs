//! A panic where a seat is connected is that seat's trouble.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hsmux_pool::{Options, Seat, SeatState};
use hsmux_token::Token;

use crate::vault::*;

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
