//! A fork waits until no thread is between the making of a descriptor and its mark, or between the end of the mark
//! and the closing: whoever is makes no call that blocks.
//!
//! Counters and no lock: a fork's child can wait for no thread of its parent. Nobody waits for ever either, for a
//! signal handler may fork in the middle of its own thread's turn.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A fork waits no longer for a thread. On a busy machine such a thread may not be scheduled in time.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

static GATE: Gate = Gate::open();

/// `prepare` of `pthread_atfork`(3).
pub extern "C" fn before() {
    GATE.close();
}

/// `parent` of `pthread_atfork`(3).
pub extern "C" fn after_in_parent() {
    leave(&GATE.forking);
}

/// `child` of `pthread_atfork`(3).
pub extern "C" fn after_in_child() {
    GATE.begin_anew();
}

/// The right to make or close a descriptor.
#[derive(Debug)]
pub(super) struct Pass(&'static AtomicU32);

impl Pass {
    /// Waits for forks that have begun.
    pub fn enter() -> Self {
        GATE.enter()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        leave(self.0);
    }
}

struct Gate {
    /// Threads that make or close a descriptor.
    inside: AtomicU32,
    /// Threads that fork.
    forking: AtomicU32,
}

impl Gate {
    const fn open() -> Self {
        Self {
            inside: AtomicU32::new(0),
            forking: AtomicU32::new(0),
        }
    }

    fn enter(&'static self) -> Pass {
        let mut limit = None;
        loop {
            // Each side says what it is about to do before it looks at the other: one of two sees it.
            self.inside.fetch_add(1, Ordering::SeqCst);
            if self.forking.load(Ordering::SeqCst) == 0
                || limit.get_or_insert_with(WaitLimit::new).is_over()
            {
                return Pass(&self.inside);
            }
            leave(&self.inside);
            thread::yield_now();
        }
    }

    fn close(&self) {
        let limit = WaitLimit::new();
        self.forking.fetch_add(1, Ordering::SeqCst);
        while self.inside.load(Ordering::SeqCst) != 0 && !limit.is_over() {
            thread::yield_now();
        }
    }

    /// Threads that were on their way are not in the child.
    fn begin_anew(&self) {
        self.forking.store(0, Ordering::SeqCst);
        self.inside.store(0, Ordering::SeqCst);
    }
}

/// Never below 0: a child has begun anew.
fn leave(count: &AtomicU32) {
    let _ = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |one| one.checked_sub(1));
}

/// The time at which a wait for other threads ends.
struct WaitLimit(Instant);

impl WaitLimit {
    fn new() -> Self {
        Self(Instant::now() + LONGEST_WAIT)
    }

    fn is_over(&self) -> bool {
        Instant::now() > self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_fork_waits_for_who_is_inside_and_who_comes_waits_for_the_fork() {
        static GATE: Gate = Gate::open();
        let (inside, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let (knocked, let_in) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _pass = GATE.enter();
                inside.store(true, Ordering::SeqCst);
                until(|| GATE.forking.load(Ordering::SeqCst) == 1);
                done.store(true, Ordering::SeqCst);
            });
            until(|| inside.load(Ordering::SeqCst));
            GATE.close();
            assert!(done.load(Ordering::SeqCst));
            scope.spawn(|| {
                knocked.store(true, Ordering::SeqCst);
                let _pass = GATE.enter();
                let_in.store(true, Ordering::SeqCst);
            });
            until(|| knocked.load(Ordering::SeqCst));
            for _ in 0..100 {
                thread::yield_now();
                assert!(!let_in.load(Ordering::SeqCst));
            }
            leave(&GATE.forking);
            until(|| let_in.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn a_signal_handler_that_forks_in_its_threads_own_turn_waits_not_for_ever() {
        static GATE: Gate = Gate::open();
        let pass = GATE.enter();
        GATE.close();
        GATE.begin_anew();
        drop(pass);
        let since = Instant::now();
        GATE.close();
        assert!(since.elapsed() < LONGEST_WAIT, "nobody is inside");
    }

    fn until(what: impl Fn() -> bool) {
        let limit = WaitLimit::new();
        while !what() {
            assert!(!limit.is_over(), "nothing comes");
            thread::yield_now();
        }
    }
}
