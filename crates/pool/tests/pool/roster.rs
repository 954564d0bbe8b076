//! Members that several administrators add, park and remove at the same moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use hsmux_pool::{Options, SeatState};
use hsmux_token::Token;

use crate::vault::*;

#[test]
fn a_seat_that_takes_a_removed_one_s_place_is_not_removed_by_who_comes_late() {
    let key = Key::new(1);
    for late in ["remove", "park"] {
        let [one, two, new] =
            ["m#1", "m#2", "new"].map(|name| Supply::of(move || honest(name, key)));
        let pool = pool(Options::default(), vec![one.seat("m#1"), two.seat("m#2")]);
        // Whoever comes late waits for what runs on the second seat.
        two.last().hang();
        let running: Vec<_> = (0..8)
            .map(|_| submit(&pool, key.signing(), in_seconds(60)))
            .collect();
        eventually("one runs there", || {
            pool.status().seats[1].in_flight > 0 && pool.status().seats[0].in_flight == 0
        });
        let waits = {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || match late {
                "remove" => pool.remove("m"),
                _ => pool.park("m", "late"),
            })
        };
        eventually("both are draining", || {
            let seats = pool.status().seats;
            seats.iter().all(|seat| seat.state == SeatState::Draining)
        });
        pool.remove("m#1").unwrap();
        pool.add(new.seat("new")).unwrap();
        let serves = || {
            let seats = pool.status().seats;
            let mut new = seats.iter().filter(|seat| seat.name == "new");
            new.any(|seat| seat.state == SeatState::InService && seat.objects == 1)
        };
        eventually("the new one serves", serves);
        two.last().lose("it hung");
        waits.join().unwrap().unwrap();
        assert!(serves(), "{late}: {:?}", pool.status().seats);
        drop(running);
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
        // While it is away requests wait for it, as for any member.
        new.last().lose("for a moment");
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    }
}

#[test]
fn a_pool_has_256_workers_at_most() {
    let key = Key::new(1);
    let [here, more] = ["here", "more"].map(|name| Supply::of(move || honest(name, key)));
    let pool = pool(Options::default(), vec![here.seat("here")]);
    let seats = (0..256).map(|number| more.seat(&format!("more#{number}")));
    let refused = pool.add_all(seats.collect()).unwrap_err().to_string();
    assert!(refused.contains("at most 256 seats"), "{refused}");
    assert_eq!(pool.status().seats.len(), 1, "all of them, or none");
}

#[test]
fn what_was_parked_and_has_gone_is_forgotten_at_the_start() {
    let key = Key::new(1);
    let [here, new] = ["here", "gone"].map(|name| Supply::of(move || honest(name, key)));
    let why = |name: &str| (name.to_owned(), "new firmware".to_owned());
    let options = Options {
        parked: BTreeMap::from(["here", "gone"].map(why)),
        ..Options::default()
    };
    let pool = pool(options, vec![here.seat("here")]);
    assert_eq!(pool.parked(), BTreeMap::from([why("here")]));
    assert_eq!(pool.status().seats[0].state, SeatState::Parked);
    pool.add(new.seat("gone")).unwrap();
    eventually("the new one serves", || {
        pool.status().seats[1].state == SeatState::InService
    });
}
