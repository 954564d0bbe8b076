//! Time, randomness, threads and waiting. In a simulation all of them follow from its seed.

use std::io;
use std::time::{Duration, Instant, SystemTime};

#[cfg(not(test))]
pub(crate) use hsmux_token::sync::Mutex;
use hsmux_token::sync::{Condvar, MutexGuard};

#[cfg(test)]
use crate::simulation;
#[cfg(test)]
pub(crate) use crate::simulation::Mutex;

/// A value, and the threads that wait for it to change.
#[derive(Default)]
pub(crate) struct Monitor<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    pub const fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Condvar::new(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock()
    }

    /// Waits to be notified; may return without.
    pub fn wait<'a>(&'a self, mut value: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        #[cfg(test)]
        if simulation::is_here() {
            drop(value);
            simulation::wait(self.address(), None);
            return self.lock();
        }
        self.changed.wait(&mut value);
        value
    }

    /// Waits to be notified, or until a time: whether that has passed. May return without either.
    pub fn wait_until<'a>(
        &'a self,
        mut value: MutexGuard<'a, T>,
        until: Instant,
    ) -> (MutexGuard<'a, T>, bool) {
        #[cfg(test)]
        if simulation::is_here() {
            drop(value);
            simulation::wait(self.address(), Some(until));
            return (self.lock(), now() >= until);
        }
        let is_late = self.changed.wait_until(&mut value, until);
        (value, is_late)
    }

    pub fn notify_one(&self) {
        #[cfg(test)]
        simulation::notify(self.address(), 1);
        self.changed.notify_one();
    }

    pub fn notify_all(&self) {
        #[cfg(test)]
        simulation::notify(self.address(), usize::MAX);
        self.changed.notify_all();
    }

    #[cfg(test)]
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

pub(crate) fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = simulation::now() {
        return now;
    }
    Instant::now()
}

/// The time of day, for people.
pub(crate) fn wall() -> SystemTime {
    #[cfg(test)]
    if let Some(wall) = simulation::wall() {
        return wall;
    }
    SystemTime::now()
}

pub(crate) fn sleep(time: Duration) {
    #[cfg(test)]
    if simulation::is_here() {
        return simulation::wait(0, Some(now() + time));
    }
    std::thread::sleep(time);
}

/// Lets the thread go on first that this one waits for.
pub(crate) fn give_way() {
    #[cfg(test)]
    if simulation::is_here() {
        simulation::give_way();
        return;
    }
    std::thread::yield_now();
}

/// Random bytes of the host.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    #[cfg(test)]
    if simulation::random(bytes) {
        return Ok(());
    }
    getrandom::fill(bytes)
}

/// Runs a task on a thread of its own.
pub(crate) fn spawn(name: String, task: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[cfg(test)]
    let Some(task) = simulation::spawn(&name, Box::new(task)) else {
        return Ok(());
    };
    let thread = std::thread::Builder::new().name(name);
    thread.spawn(task).map(drop)
}
