//! Turns: what may take long, one after the other, each until its deadline.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use super::{Condvar, Mutex, MutexGuard};

/// A [`Mutex`] for what may take long: who waits for it does so until a deadline. Some may also take
/// turns together, without the value.
#[derive(Debug, Default)]
pub struct Turn<T> {
    holders: Mutex<Holders>,
    freed: Condvar,
    value: Mutex<T>,
}

/// The value, for as long as it is this thread's turn.
#[derive(Debug)]
pub struct TurnGuard<'a, T> {
    // Before `_turn`: the value is free when the next one's turn begins.
    value: MutexGuard<'a, T>,
    _turn: SharedTurn<'a>,
}

/// Nobody else has the turn for themselves meanwhile.
#[derive(Debug)]
pub struct SharedTurn<'a> {
    holders: &'a Mutex<Holders>,
    freed: &'a Condvar,
}

#[derive(Debug, Default)]
struct Holders {
    one: bool,
    together: usize,
    /// Threads that wait to be alone. They go before those that would share.
    waiting: usize,
}

impl<T> Turn<T> {
    /// Nobody's turn.
    pub fn new(value: T) -> Self {
        Self {
            holders: Mutex::default(),
            freed: Condvar::new(),
            value: Mutex::new(value),
        }
    }

    /// Waits for the turn.
    pub fn lock(&self) -> TurnGuard<'_, T> {
        let mut holders = self.holders.lock();
        holders.waiting += 1;
        while !holders.nobody() {
            self.freed.wait(&mut holders);
        }
        self.begin(holders)
    }

    /// Waits for the turn until `deadline`.
    pub fn lock_until(&self, deadline: Instant) -> Option<TurnGuard<'_, T>> {
        let mut holders = self.holders.lock();
        holders.waiting += 1;
        while !holders.nobody() {
            if self.freed.wait_until(&mut holders, deadline) && !holders.nobody() {
                holders.waiting -= 1;
                self.freed.notify_all();
                return None;
            }
        }
        Some(self.begin(holders))
    }

    /// Waits for a turn beside others of this kind.
    pub fn share(&self) -> SharedTurn<'_> {
        let mut holders = self.holders.lock();
        while !holders.may_share() {
            self.freed.wait(&mut holders);
        }
        holders.together += 1;
        self.held()
    }

    /// [`Self::share`] until `deadline`.
    pub fn share_until(&self, deadline: Instant) -> Option<SharedTurn<'_>> {
        let mut holders = self.holders.lock();
        while !holders.may_share() {
            if self.freed.wait_until(&mut holders, deadline) && !holders.may_share() {
                return None;
            }
        }
        holders.together += 1;
        Some(self.held())
    }

    fn begin(&self, mut holders: MutexGuard<'_, Holders>) -> TurnGuard<'_, T> {
        holders.waiting -= 1;
        holders.one = true;
        drop(holders);
        TurnGuard {
            value: self.value.lock(),
            _turn: self.held(),
        }
    }

    fn held(&self) -> SharedTurn<'_> {
        SharedTurn {
            holders: &self.holders,
            freed: &self.freed,
        }
    }
}

impl Holders {
    fn nobody(&self) -> bool {
        !self.one && self.together == 0
    }

    fn may_share(&self) -> bool {
        !self.one && self.waiting == 0
    }
}

impl<T> Deref for TurnGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for TurnGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl Drop for SharedTurn<'_> {
    fn drop(&mut self) {
        let mut holders = self.holders.lock();
        holders.one = false;
        holders.together = holders.together.saturating_sub(1);
        drop(holders);
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_turn_is_waited_for_until_the_deadline() {
        let turn = Arc::new(Turn::new(1));
        let mine = turn.lock();
        assert!(
            turn.lock_until(Instant::now() + Duration::from_millis(20))
                .is_none()
        );
        let other = Arc::clone(&turn);
        let waits = thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(60);
            *other.lock_until(deadline).expect("the turn comes") += 1;
        });
        drop(mine);
        waits.join().unwrap();
        assert_eq!(*turn.lock(), 2);
    }

    #[test]
    fn a_turn_that_is_shared_is_nobodys_alone() {
        let turn = Turn::new(());
        let soon = || Instant::now() + Duration::from_millis(20);
        let together = [turn.share(), turn.share()];
        assert!(turn.lock_until(soon()).is_none());
        let [one, other] = together;
        drop(one);
        assert!(turn.lock_until(soon()).is_none());
        drop(other);
        assert!(turn.lock_until(soon()).is_some());
        drop(turn.share());
    }

    #[test]
    fn to_share_is_waited_for_until_the_deadline() {
        let turn = Turn::new(());
        let soon = || Instant::now() + Duration::from_millis(20);
        let alone = turn.lock();
        assert!(turn.share_until(soon()).is_none());
        drop(alone);
        let shared = turn.share_until(soon()).expect("nobody has it");
        assert!(turn.lock_until(soon()).is_none());
        drop(shared);
        drop(turn.lock());
    }
}
