//! Keys are proved a few at a time, over all seats.

use hsmux_token::sync::{Condvar, Mutex};

/// How many keys are proved at the same time, over all seats.
const AT_ONCE: usize = 8;

/// A counting semaphore.
#[derive(Default)]
pub(crate) struct Turns {
    taken: Mutex<usize>,
    left: Condvar,
}

/// One of them, until it is dropped.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for one.
    pub fn take(&self) -> Turn<'_> {
        let mut taken = self.taken.lock();
        while *taken >= AT_ONCE {
            self.left.wait(&mut taken);
        }
        *taken += 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() -= 1;
        self.0.left.notify_one();
    }
}
