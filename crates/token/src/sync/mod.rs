//! Locks that a fork's child may use, for every crate that the module carries into an application.
//!
//! They are the standard library's, without poison. A parking lot's are smaller and as fast, but keep
//! ONE table of parked threads for the whole process: in a fork's child it still names the parent's
//! threads, whose memory the child's own threads are given, and who parks there writes into it.
//!
//! With `--cfg shuttle` they are [shuttle](https://docs.rs/shuttle)'s, which tries orders of threads
//! (`docs/internals/simulation.md`).

#[cfg(all(test, shuttle))]
mod interleavings;
#[cfg(shuttle)]
mod orders;
mod turn;

use std::ops::{Deref, DerefMut};
#[cfg(not(shuttle))]
use std::sync as base;
#[cfg(not(shuttle))]
use std::time::Instant;

#[cfg(shuttle)]
pub use orders::{Deadlines, in_many_orders};
#[cfg(shuttle)]
pub use shuttle;
#[cfg(shuttle)]
use shuttle::sync as base;

use base::atomic::{AtomicUsize, Ordering};
use base::{PoisonError, TryLockError};

pub use base::{RwLockReadGuard, RwLockWriteGuard, atomic};
pub use turn::{SharedTurn, Turn, TurnGuard};

/// Mutual exclusion; a thread that panicked with the lock has left the value as it was.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(base::Mutex<T>);

/// The value, for as long as it is locked.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    held: Option<base::MutexGuard<'a, T>>,
    #[cfg(shuttle)]
    of: &'a Mutex<T>,
}

/// Threads that wait for the value under a [`Mutex`] to change. To wake nobody costs no system call, which
/// the standard library's makes in any case.
#[derive(Debug, Default)]
pub struct Condvar {
    wake: base::Condvar,
    /// Changed with the lock held: who changed the value under it afterwards sees who waits.
    waiting: AtomicUsize,
}

/// Many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(base::RwLock<T>);

impl<T> Mutex<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(base::Mutex::new(value))
    }

    /// The value, for good.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.held(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(held) => Some(self.held(held)),
            Err(TryLockError::Poisoned(held)) => Some(self.held(held.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[cfg_attr(not(shuttle), expect(clippy::unused_self))]
    fn held<'a>(&'a self, held: base::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            held: Some(held),
            #[cfg(shuttle)]
            of: self,
        }
    }

    /// The value, which nobody else can see.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the standard library's guard is always there: only [`Condvar`] takes it, and puts it back.
const HELD: &str = "a guard holds its lock but while a condition variable waits";

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect(HELD)
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(HELD)
    }
}

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self {
            wake: base::Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits to be notified; may return without.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.waits(guard, |held| {
            self.wake.wait(held).unwrap_or_else(PoisonError::into_inner)
        });
    }

    /// Waits to be notified, or until `deadline`: whether that has passed. May return without either.
    #[cfg(not(shuttle))]
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut late = false;
        self.waits(guard, |held| {
            let waited = self.wake.wait_timeout(held, left);
            let (held, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            late = timeout.timed_out();
            held
        });
        late
    }

    fn waits<'a, T>(
        &self,
        guard: &mut MutexGuard<'a, T>,
        wait: impl FnOnce(base::MutexGuard<'a, T>) -> base::MutexGuard<'a, T>,
    ) {
        let held = guard.held.take().expect(HELD);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        guard.held = Some(wait(held));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes one of those that wait for what was changed under their lock.
    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake.notify_one();
        }
    }

    /// Wakes all that wait for what was changed under their lock.
    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake.notify_all();
        }
    }
}

impl<T> RwLock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(base::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn a_panic_does_not_poison() {
        let shared = Arc::new((Mutex::new(1), RwLock::new(2)));
        let other = Arc::clone(&shared);
        let ended = thread::spawn(move || {
            let _guards = (other.0.lock(), other.1.write());
            panic!("on purpose");
        });
        assert!(ended.join().is_err());
        assert_eq!((*shared.0.lock(), *shared.1.read()), (1, 2));
        assert!(shared.0.try_lock().is_some());
    }

    #[test]
    fn a_condition_gives_the_lock_back() {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let other = Arc::clone(&shared);
        let mut value = shared.0.lock();
        let sets = thread::spawn(move || {
            *other.0.lock() = 7;
            other.1.notify_all();
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        while *value == 0 {
            assert!(!shared.1.wait_until(&mut value, deadline));
        }
        drop(value);
        sets.join().unwrap();
        assert_eq!(shared.0.try_lock().as_deref(), Some(&7));
    }
}
