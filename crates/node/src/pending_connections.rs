//! Connections before authentication. If all slots are taken, the oldest is dropped. A host needs milliseconds for
//! its handshake, so any number of strangers keeps no host out.

use std::sync::Arc;

use hsmux_token::Slots;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The most connections before authentication. One that has sent something costs a few dozen kilobytes.
const MAX_PENDING: usize = 512;

/// All connections before authentication. Their users are unknown, so they count as one.
#[derive(Default)]
pub struct PendingConnections(Mutex<Slots<(), Arc<Notify>>>);

/// The place of one of them.
pub struct PendingSlot {
    pending: Arc<PendingConnections>,
    number: u64,
    leave: Arc<Notify>,
}

impl PendingConnections {
    /// Takes one in.
    pub fn enter(self: &Arc<Self>) -> PendingSlot {
        let mut waiting = self.0.lock();
        if waiting.len() == MAX_PENDING
            && let Some(leave) = waiting.evict((), |_| true)
        {
            leave.notify_one();
        }
        let leave = Arc::new(Notify::new());
        let number = waiting.insert((), Arc::clone(&leave));
        drop(waiting);
        PendingSlot {
            pending: Arc::clone(self),
            number,
            leave,
        }
    }
}

impl PendingSlot {
    /// Waits until another connection needs the slot.
    pub async fn needed(&self) {
        self.leave.notified().await;
    }
}

impl Drop for PendingSlot {
    fn drop(&mut self) {
        self.pending.0.lock().remove((), self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn has_to_go(slot: &PendingSlot) -> bool {
        let needed = pin!(slot.needed());
        needed
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn who_has_been_there_longest_makes_room() {
        let pending = Arc::new(PendingConnections::default());
        let mut slots: Vec<_> = (0..MAX_PENDING).map(|_| pending.enter()).collect();
        assert!(!slots.iter().any(has_to_go));
        // An authenticated connection has left.
        drop(slots.remove(0));
        slots.push(pending.enter());
        assert!(!slots.iter().any(has_to_go));
        slots.push(pending.enter());
        let gone: Vec<_> = slots.iter().map(has_to_go).collect();
        assert!(gone[0] && !gone[1..].contains(&true));
        // It leaves when it is notified: no other one has to leave for it.
        drop(slots.remove(0));
        assert_eq!(pending.0.lock().len(), MAX_PENDING);
    }
}
