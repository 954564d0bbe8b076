//! What a connection is doing, and whether it may be closed to make room for another.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::memory::Account;
use crate::signer::Progress;

/// A client that has been told that its connection ends has so long to say what it has just sent.
const GRACE: Duration = Duration::from_millis(250);

/// What one connection is doing.
#[derive(Default)]
pub struct Activity {
    /// It waits for its place, is a tunnel, or has its one request.
    kept: AtomicBool,
    handshake: OnceLock<Arc<Progress>>,
    account: OnceLock<Arc<Account>>,
    evicted: AtomicBool,
    told: Notify,
}

impl Activity {
    /// Of a connection that has no place yet, which could leave none to another.
    pub fn new() -> Arc<Self> {
        let activity = Self::default();
        activity.keep();
        Arc::new(activity)
    }

    /// It has a place.
    pub fn begin(&self) {
        self.kept.store(false, Relaxed);
    }

    /// It has begun this handshake.
    pub fn shakes(&self, progress: &Arc<Progress>) {
        let _ = self.handshake.set(Arc::clone(progress));
    }

    /// It has requests, which hold this memory.
    pub fn asks(&self, account: &Arc<Account>) {
        let _ = self.account.set(Arc::clone(account));
    }

    /// It is not idle from now on.
    pub fn keep(&self) {
        self.kept.store(true, Relaxed);
    }

    /// Whether nobody waits for us: no signature, no request, and no rest of an answer.
    pub fn is_idle(&self) -> bool {
        let signs = |progress: &Arc<Progress>| progress.is_signing();
        let serves = |account: &Arc<Account>| account.is_busy();
        !self.kept.load(Relaxed)
            && !self.handshake.get().is_some_and(signs)
            && !self.account.get().is_some_and(serves)
    }

    /// Has it end.
    pub fn evict(&self) {
        self.evicted.store(true, Relaxed);
        self.told.notify_one();
    }

    /// Whether it has to end.
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Relaxed)
    }

    /// Comes when it has to end, to the one who waits for that.
    pub async fn evicted(&self) {
        while !self.is_evicted() {
            self.told.notified().await;
        }
    }

    /// Comes when it has had its time to end in good order, and is idle.
    pub async fn had_its_time(&self) {
        loop {
            sleep(GRACE).await;
            if self.is_idle() {
                return;
            }
        }
    }
}
