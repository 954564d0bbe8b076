use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::{Finished, PATIENCE, Run, until};

/// Callers that repeat a program until they are stopped or dropped.
pub struct BackgroundLoad {
    shared: Arc<LoadState>,
    callers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadState {
    stop: AtomicBool,
    done: AtomicU64,
    failed: Mutex<Vec<Finished>>,
}

impl BackgroundLoad {
    /// Starts this number of callers of `ask`.
    pub fn start(callers: usize, ask: impl Fn() -> Run + Clone + Send + 'static) -> Self {
        let shared = Arc::new(LoadState::default());
        let caller = |_| {
            let (shared, ask) = (Arc::clone(&shared), ask.clone());
            thread::spawn(move || shared.run(ask))
        };
        Self {
            callers: (0..callers).map(caller).collect(),
            shared,
        }
    }

    /// Waits until this number of further runs has ended, with any result.
    pub fn goes_on(&self, more: u64) {
        let done = || self.shared.done.load(Ordering::Relaxed);
        let goal = done() + more;
        until("the load goes on", PATIENCE, || {
            (done() >= goal).then_some(())
        });
    }

    /// Stops it, and returns the failed runs.
    pub fn stop(mut self) -> Vec<Finished> {
        self.end();
        let mut failed = self.shared.failed.lock().expect("the failures");
        std::mem::take(&mut *failed)
    }

    /// Stops it, and panics with the first failure if there was one.
    #[track_caller]
    pub fn none_failed(self) {
        self.at_most_failed(0);
    }

    /// The same with a number of permitted failures.
    #[track_caller]
    pub fn at_most_failed(self, allowed: usize) {
        let shared = Arc::clone(&self.shared);
        let failed = self.stop();
        let (count, done) = (failed.len(), shared.done.load(Ordering::Relaxed));
        assert!(count <= allowed, "{count} of {done} failed:\n{}", failed[0]);
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for caller in self.callers.drain(..) {
            let _ = caller.join();
        }
    }
}

impl LoadState {
    fn run(&self, ask: impl Fn() -> Run) {
        while !self.stop.load(Ordering::Relaxed) {
            let finished = ask().finish();
            if finished.code != Some(0) {
                self.failed.lock().expect("the failures").push(finished);
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for BackgroundLoad {
    fn drop(&mut self) {
        self.end();
    }
}
