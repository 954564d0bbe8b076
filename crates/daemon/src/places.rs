//! What one other host may have outstanding at once: the pool's queue is for all, and no host fills it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hsmux_token::{Error, Kind, Result};

/// Calls of a host that wait or run.
#[derive(Clone, Default)]
pub struct Places(Arc<AtomicUsize>);

/// One of them, until it is answered.
pub struct Place(Places);

impl Places {
    /// For one more call, where there may be so many.
    pub fn take(&self, most: usize) -> Result<Place> {
        let taken = self.0.fetch_add(1, Ordering::Relaxed);
        // Given back below where it is one too many.
        let place = Place(self.clone());
        if taken < most {
            return Ok(place);
        }
        let message =
            format!("{taken} calls of this host wait or run, its share of the pool's queue");
        Err(Error::pool(Kind::Busy, message))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use hsmux_token::Scope;

    use super::*;

    #[test]
    fn one_too_many_is_told_until_another_has_ended() {
        let places = Places::default();
        let mut taken: Vec<_> = (0..2).map(|_| places.take(2).ok().unwrap()).collect();
        for _ in 0..3 {
            let error = places.take(2).err().unwrap();
            assert_eq!((error.kind(), error.scope()), (Kind::Busy, Scope::Pool));
        }
        taken.pop();
        assert!(places.take(2).is_ok());
    }
}
