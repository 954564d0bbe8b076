//! Delays frames until a thread has submitted all its operations: operations that wait for the same lane then share a frame.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// Senders whose frames this thread delays; `None` outside of [`together`].
    static CORKED: RefCell<Option<Vec<Arc<dyn Corked>>>> = const { RefCell::new(None) };
}

/// A sender of frames.
pub(crate) trait Corked {
    /// Writes all delayed frames.
    fn uncork(&self);
}

/// Runs `work`, and writes the operations that it submits together if they have to wait for a busy lane anyway. An operation
/// that finds an idle lane is sent at once. `work` must not wait for an answer.
pub fn together<R>(work: impl FnOnce() -> R) -> R {
    let outermost = CORKED.with_borrow_mut(|corked| {
        let outermost = corked.is_none();
        corked.get_or_insert_default();
        outermost
    });
    let _uncorking = outermost.then_some(Uncorking);
    work()
}

/// Delays the frames of `from` if this thread is in [`together`]; whether it is.
pub(crate) fn put_off(from: &Arc<impl Corked + 'static>) -> bool {
    CORKED.with_borrow_mut(|corked| {
        let Some(corked) = corked else { return false };
        let known =
            |other: &Arc<dyn Corked>| std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(from));
        if !corked.iter().any(known) {
            corked.push(from.clone());
        }
        true
    })
}

/// Writes the delayed frames when it is dropped, also after a panic.
struct Uncorking;

impl Drop for Uncorking {
    fn drop(&mut self) {
        // Taken out first: frames that follow from these writes are not delayed.
        for from in CORKED.take().into_iter().flatten() {
            from.uncork();
        }
    }
}
