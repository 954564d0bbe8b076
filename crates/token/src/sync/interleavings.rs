//! Locks under random orders of their threads. A thread that waits for ever is a failure: shuttle reports a deadlock.

use std::sync::Arc;
use std::time::Instant;

use shuttle::thread;

use super::*;

/// Orders of threads that each test tries, of each kind.
const ORDERS: usize = 20_000;

#[test]
fn a_waiter_sees_each_change() {
    in_many_orders(ORDERS, Deadlines::Pass, || {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let adders: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    *shared.0.lock() += 1;
                    shared.1.notify_one();
                })
            })
            .collect();
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut value = shared.0.lock();
                    while *value == 0 {
                        shared.1.wait(&mut value);
                    }
                    *value -= 1;
                })
            })
            .collect();
        let threads = adders.into_iter().chain(takers);
        threads.for_each(|thread| thread.join().unwrap());
        assert_eq!(*shared.0.lock(), 0);
    });
}

/// What the holders of a turn see of each other.
#[derive(Default)]
struct Seen {
    alone: usize,
    together: usize,
}

#[test]
fn a_turn_is_for_one_or_for_those_that_share_it() {
    in_many_orders(ORDERS, Deadlines::Pass, || {
        let turn = Arc::new(Turn::new(0));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let threads: Vec<_> = (0..4)
            .map(|kind| {
                let (turn, seen) = (Arc::clone(&turn), Arc::clone(&seen));
                thread::spawn(move || hold(kind, &turn, &seen))
            })
            .collect();
        let alone: usize = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        assert_eq!(
            *turn.lock(),
            alone,
            "the turn is free, and no change is lost"
        );
    });
}

#[test]
fn a_turn_is_shared_again_when_one_has_waited_too_long_to_be_alone() {
    in_many_orders(ORDERS, Deadlines::Pass, || {
        let turn = Arc::new(Turn::new(()));
        let shares = turn.share();
        let others: Vec<_> = (0..2)
            .map(|kind| {
                let turn = Arc::clone(&turn);
                thread::spawn(move || match kind {
                    0 => assert!(turn.lock_until(Instant::now()).is_none()),
                    _ => drop(turn.share()),
                })
            })
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        drop(shares);
    });
}

/// Takes the turn in one of four ways. Returns 1 if it was alone.
fn hold(kind: usize, turn: &Turn<usize>, seen: &Mutex<Seen>) -> usize {
    let now = Instant::now();
    let alone = match kind {
        0 => Some(turn.lock()),
        1 => turn.lock_until(now),
        _ => None,
    };
    if let Some(mut value) = alone {
        let before = *value;
        enter(seen, |seen| &mut seen.alone);
        *value = before + 1;
        leave(seen, |seen| &mut seen.alone);
        return 1;
    }
    let shared = match kind {
        2 => Some(turn.share()),
        3 => turn.share_until(now),
        _ => None,
    };
    if shared.is_some() {
        enter(seen, |seen| &mut seen.together);
        leave(seen, |seen| &mut seen.together);
    }
    0
}

fn enter(seen: &Mutex<Seen>, count: fn(&mut Seen) -> &mut usize) {
    let mut seen = seen.lock();
    *count(&mut seen) += 1;
    assert!(
        seen.alone == 0 || seen.alone == 1 && seen.together == 0,
        "{} alone, {} together",
        seen.alone,
        seen.together
    );
}

fn leave(seen: &Mutex<Seen>, count: fn(&mut Seen) -> &mut usize) {
    thread::yield_now();
    *count(&mut seen.lock()) -= 1;
}
