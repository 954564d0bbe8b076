//! The budget under random orders of threads. A connection that is never resumed is a failure: shuttle reports a
//! deadlock.

use hsmux_token::sync::shuttle::thread;
use hsmux_token::sync::{Condvar, Mutex};
use hsmux_token::sync::{Deadlines, in_many_orders};

use super::*;

/// Orders of threads that the test tries, of each kind.
const ORDERS: usize = 10_000;

/// Two connections fit, and the others wait.
const CONNECTIONS: usize = 4;
const HALF: usize = USER / 2;

#[derive(Default)]
struct PausableConnection {
    paused: Mutex<bool>,
    resumed: Condvar,
}

impl Reader for PausableConnection {
    fn pause(&self) {
        *self.paused.lock() = true;
    }

    fn resume(&self) {
        *self.paused.lock() = false;
        self.resumed.notify_one();
    }
}

impl PausableConnection {
    fn wait(&self) {
        let mut paused = self.paused.lock();
        while *paused {
            self.resumed.wait(&mut paused);
        }
    }
}

#[test]
fn every_connection_that_waits_gets_its_room() {
    in_many_orders(ORDERS, Deadlines::Pass, || {
        let budgets = Budgets::default();
        let held = Arc::new(AtomicUsize::new(0));
        let charges: Vec<_> = (0..CONNECTIONS).map(|_| budgets.of(7)).collect();
        let of_user = Arc::clone(&charges[0].short_of_user);
        let callers = charges.into_iter().map(|charge| {
            let held = Arc::clone(&held);
            thread::spawn(move || call_twice(&charge, &held))
        });
        let callers: Vec<_> = callers.collect();
        callers
            .into_iter()
            .for_each(|caller| caller.join().unwrap());
        assert!(budgets.long.lock().is_empty(), "no room is lost");
        assert_eq!(
            of_user.load(Ordering::Relaxed),
            0,
            "no short bytes are lost"
        );
    });
}

/// Two long calls and a short one, as the reader of one connection makes them. Others answer.
fn call_twice(charge: &Charge, held: &AtomicUsize) {
    let reader = Arc::new(PausableConnection::default());
    for _ in 0..2 {
        while charge.ask(HALF, FREE, &reader) != Room::Granted {
            reader.wait();
        }
        let now = held.fetch_add(HALF, Ordering::Relaxed) + HALF;
        assert!(now <= USER, "{now} bytes are held of {USER}");
        held.fetch_sub(HALF, Ordering::Relaxed);
        charge.set(0).resume();
        assert_eq!(charge.ask(FREE, FREE, &reader), Room::Granted);
    }
}
