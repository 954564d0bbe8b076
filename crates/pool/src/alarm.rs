//! When the keeper has to look next. Setting a later alarm than the one that is set costs one load.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clock::{self, Monitor};

/// Wakes one sleeper at the earliest of many moments, some of which never come to pass: the
/// sleeper then looks once in vain.
pub(crate) struct Alarm {
    base: Instant,
    /// Nanoseconds after `base`; changed under the lock of `rung` only.
    set: AtomicU64,
    rung: Monitor<()>,
}

const NEVER: u64 = u64::MAX;

impl Alarm {
    pub fn new() -> Self {
        Self {
            base: clock::now(),
            set: AtomicU64::new(0),
            rung: Monitor::default(),
        }
    }

    /// Not later than this. To be called after what is due then can be seen by the keeper.
    pub fn by(&self, due: Instant) {
        let due = self.nanos(due);
        if due >= self.set.load(Ordering::Acquire) {
            return;
        }
        let _held = self.rung.lock();
        if due < self.set.load(Ordering::Acquire) {
            self.set.store(due, Ordering::Release);
            self.rung.notify_one();
        }
    }

    /// At once.
    pub fn now(&self) {
        self.by(self.base);
    }

    /// For the keeper: before it looks for what is due. Alarms set from here on are not lost.
    pub fn reset(&self) {
        let _held = self.rung.lock();
        self.set.store(NEVER, Ordering::Release);
    }

    /// For the keeper: after it has looked, sleeps until `nearest` or an earlier alarm.
    pub fn sleep(&self, nearest: Option<Instant>) {
        let mut held = self.rung.lock();
        let nearest = nearest.map_or(NEVER, |due| self.nanos(due));
        let set = self.set.load(Ordering::Acquire).min(nearest);
        self.set.store(set, Ordering::Release);
        loop {
            let until = self.set.load(Ordering::Acquire);
            if until == NEVER {
                held = self.rung.wait(held);
            } else {
                let until = self.base + Duration::from_nanos(until);
                if clock::now() >= until {
                    return;
                }
                (held, _) = self.rung.wait_until(held, until);
            }
        }
    }

    fn nanos(&self, due: Instant) -> u64 {
        due.saturating_duration_since(self.base).as_nanos() as u64
    }
}
