//! A lock that lets other tasks of a simulation run before it is taken.

use hsmux_token::sync::{self, MutexGuard};

use super::executor::{before_lock, let_others_run};

/// As [`sync::Mutex`]. Outside a simulation it does the same.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !super::is_here() {
            return self.0.lock();
        }
        before_lock();
        loop {
            match self.0.try_lock() {
                Some(value) => return value,
                None => let_others_run(),
            }
        }
    }
}
