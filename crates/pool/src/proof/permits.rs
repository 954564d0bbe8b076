//! Limits how many keys are proved at once, over all seats.

use crate::clock::Monitor;

/// The most keys that are proved at once, over all seats.
const AT_ONCE: usize = 8;

/// A counting semaphore.
#[derive(Default)]
pub(crate) struct ProofPermits(Monitor<usize>);

/// The right to prove one key. Dropping it returns it.
pub(crate) struct ProofPermit<'a>(&'a ProofPermits);

impl ProofPermits {
    /// Waits for a permit.
    pub fn take(&self) -> ProofPermit<'_> {
        let mut taken = self.0.lock();
        while *taken >= AT_ONCE {
            taken = self.0.wait(taken);
        }
        *taken += 1;
        ProofPermit(self)
    }
}

impl Drop for ProofPermit<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() -= 1;
        self.0.0.notify_one();
    }
}
