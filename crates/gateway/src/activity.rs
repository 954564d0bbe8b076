//! Tells whether a connection is idle, and so may be closed to make room for another.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::memory::MemoryAccount;
use crate::signer::HandshakeProgress;

/// How long a connection stays open after its client was told that it ends: a request may be on its way.
const GRACE: Duration = Duration::from_millis(250);

/// The activity of one connection.
#[derive(Default)]
pub struct Activity {
    /// Never idle: it waits for its slot, is a tunnel, or has had its only request.
    is_marked_busy: AtomicBool,
    handshake: OnceLock<Arc<HandshakeProgress>>,
    account: OnceLock<Arc<MemoryAccount>>,
    evicted: AtomicBool,
    eviction: Notify,
}

impl Activity {
    /// The activity of a connection that still waits for its slot. It is not idle: it has no slot to give up.
    pub fn new() -> Arc<Self> {
        let activity = Self::default();
        activity.mark_busy();
        Arc::new(activity)
    }

    /// The connection has its slot.
    pub fn begin(&self) {
        self.is_marked_busy.store(false, Relaxed);
    }

    /// The connection has begun this handshake.
    pub fn set_handshake(&self, progress: &Arc<HandshakeProgress>) {
        let _ = self.handshake.set(Arc::clone(progress));
    }

    /// The connection serves requests, which are charged to this account.
    pub fn set_account(&self, account: &Arc<MemoryAccount>) {
        let _ = self.account.set(Arc::clone(account));
    }

    /// The connection is never idle from now on.
    pub fn mark_busy(&self) {
        self.is_marked_busy.store(true, Relaxed);
    }

    /// Whether the client waits for nothing: no signature, no request, no rest of an answer.
    pub fn is_idle(&self) -> bool {
        let signs = |progress: &Arc<HandshakeProgress>| progress.is_signing();
        let serves = |account: &Arc<MemoryAccount>| account.is_busy();
        !self.is_marked_busy.load(Relaxed)
            && !self.handshake.get().is_some_and(signs)
            && !self.account.get().is_some_and(serves)
    }

    /// Tells the connection to end.
    pub fn evict(&self) {
        self.evicted.store(true, Relaxed);
        self.eviction.notify_one();
    }

    /// Whether the connection has to end.
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Relaxed)
    }

    /// Returns when the connection has to end. Only one task may wait for it.
    pub async fn evicted(&self) {
        while !self.is_evicted() {
            self.eviction.notified().await;
        }
    }

    /// Returns when the grace period is over and the connection is idle.
    pub async fn grace_ended(&self) {
        loop {
            sleep(GRACE).await;
            if self.is_idle() {
                return;
            }
        }
    }
}
