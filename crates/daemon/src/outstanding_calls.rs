//! Limits the outstanding calls of one other host, so that no host fills the pool's queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hsmux_token::{Error, Kind, Result};

/// The number of calls of a host that wait or run.
#[derive(Clone, Default)]
pub struct OutstandingCalls(Arc<AtomicUsize>);

/// One call, until it is answered.
pub struct CallPermit(OutstandingCalls);

impl OutstandingCalls {
    /// Admits one more call if there are fewer than `most`.
    pub fn take(&self, most: usize) -> Result<CallPermit> {
        let taken = self.0.fetch_add(1, Ordering::Relaxed);
        // If it is one too many, dropping the permit takes it back.
        let permit = CallPermit(self.clone());
        if taken < most {
            return Ok(permit);
        }
        let message =
            format!("{taken} calls of this host wait or run, its share of the pool's queue");
        Err(Error::pool(Kind::Busy, message))
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use hsmux_token::Scope;

    use super::*;

    #[test]
    fn one_too_many_is_refused_until_another_has_ended() {
        let calls = OutstandingCalls::default();
        let mut taken: Vec<_> = (0..2).map(|_| calls.take(2).ok().unwrap()).collect();
        for _ in 0..3 {
            let error = calls.take(2).err().unwrap();
            assert_eq!((error.kind(), error.scope()), (Kind::Busy, Scope::Pool));
        }
        taken.pop();
        assert!(calls.take(2).is_ok());
    }
}
