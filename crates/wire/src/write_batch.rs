//! Delays frames until a thread has submitted all its operations. Operations that wait for the same lane then share a
//! frame.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// Senders whose frames this thread delays; `None` outside of [`together`].
    static BATCH: RefCell<Option<Vec<Arc<dyn BatchedSender>>>> = const { RefCell::new(None) };
}

/// A sender of frames.
pub(crate) trait BatchedSender {
    /// Writes all delayed frames.
    fn write_delayed(&self);
}

/// Runs `work`, and writes the operations that it submits together if they have to wait for a busy lane anyway. An
/// operation that finds an idle lane is sent at once. `work` must not wait for an answer.
pub fn together<R>(work: impl FnOnce() -> R) -> R {
    let outermost = BATCH.with_borrow_mut(|senders| {
        let outermost = senders.is_none();
        senders.get_or_insert_default();
        outermost
    });
    let _write_on_drop = outermost.then_some(WriteOnDrop);
    work()
}

/// Delays the frames of `sender` if this thread is in [`together`]; whether it is.
pub(crate) fn delay(sender: &Arc<impl BatchedSender + 'static>) -> bool {
    BATCH.with_borrow_mut(|senders| {
        let Some(senders) = senders else { return false };
        let known = |other: &Arc<dyn BatchedSender>| {
            std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(sender))
        };
        if !senders.iter().any(known) {
            senders.push(sender.clone());
        }
        true
    })
}

/// Writes the delayed frames when it is dropped, also after a panic.
struct WriteOnDrop;

impl Drop for WriteOnDrop {
    fn drop(&mut self) {
        // Taken out first: frames that follow from these writes are not delayed.
        for sender in BATCH.take().into_iter().flatten() {
            sender.write_delayed();
        }
    }
}
