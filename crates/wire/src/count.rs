//! How many of something are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A shared counter.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

/// One of those that are counted, for as long as it lives.
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
