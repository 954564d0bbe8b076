//! Tests in many orders of their threads. shuttle has no time, so a test says what deadlines do.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use shuttle::rand::Rng as _;

use super::{Condvar, MutexGuard};

/// What deadlines do in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadlines {
    /// They pass at random times. Whoever waits until one looks again and again.
    Pass,
    /// They never pass. Whoever waits has to be notified, or the test fails.
    Never,
}

thread_local! {
    /// Of the test on this thread; shuttle runs all threads of a test on it.
    static DEADLINES: Cell<Deadlines> = const { Cell::new(Deadlines::Pass) };
}

/// Runs `test` in many orders of its threads: `orders` times any of them, and as often one in which threads are
/// interrupted at three places only, which finds what needs a long time at one place.
pub fn in_many_orders(
    orders: usize,
    deadlines: Deadlines,
    test: impl Fn() + Send + Sync + 'static,
) {
    DEADLINES.set(deadlines);
    let test = Arc::new(test);
    let again = Arc::clone(&test);
    shuttle::check_random(move || test(), orders);
    shuttle::check_pct(move || again(), orders, 3);
}

impl Condvar {
    /// Waits to be notified, or until the deadline: whether that has passed. May return without either.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _deadline: Instant) -> bool {
        if DEADLINES.get() == Deadlines::Never {
            self.wait(guard);
            return false;
        }
        guard.held = None;
        shuttle::thread::yield_now();
        *guard = guard.of.lock();
        shuttle::rand::thread_rng().gen_bool(0.2)
    }
}
