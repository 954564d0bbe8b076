//! Counts of open connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A shared counter.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

/// Counted until it is dropped.
pub(crate) struct Counted(Count);

impl Count {
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub fn one(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
