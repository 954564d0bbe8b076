//! Limits how many keys are proved at once, over all seats.

use hsmux_token::sync::{Condvar, Mutex};

/// The most keys that are proved at once, over all seats.
const AT_ONCE: usize = 8;

/// A counting semaphore.
#[derive(Default)]
pub(crate) struct ProofPermits {
    taken: Mutex<usize>,
    left: Condvar,
}

/// The right to prove one key. Dropping it returns it.
pub(crate) struct ProofPermit<'a>(&'a ProofPermits);

impl ProofPermits {
    /// Waits for a permit.
    pub fn take(&self) -> ProofPermit<'_> {
        let mut taken = self.taken.lock();
        while *taken >= AT_ONCE {
            self.left.wait(&mut taken);
        }
        *taken += 1;
        ProofPermit(self)
    }
}

impl Drop for ProofPermit<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() -= 1;
        self.0.left.notify_one();
    }
}
