//! Putting off frames until a thread has said all that it has to say: what waits for the same lane then
//! travels together.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// Whose frames are put off on this thread; `None` where nothing is.
    static CORKED: RefCell<Option<Vec<Arc<dyn Corked>>>> = const { RefCell::new(None) };
}

/// What has frames to write.
pub(crate) trait Corked {
    /// Writes all that waits.
    fn uncork(&self);
}

/// Operations that this thread submits in `work` travel together where they have to wait anyway: for a
/// lane on which others run. One that has a lane to itself goes at once. `work` must not wait for an answer.
pub fn together<R>(work: impl FnOnce() -> R) -> R {
    let outermost = CORKED.with_borrow_mut(|corked| {
        let outermost = corked.is_none();
        corked.get_or_insert_default();
        outermost
    });
    let _uncorking = outermost.then_some(Uncorking);
    work()
}

/// Whether the frames of `from` are put off now.
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

/// Also after a panic.
struct Uncorking;

impl Drop for Uncorking {
    fn drop(&mut self) {
        // What follows from writing is not put off any more.
        for from in CORKED.take().into_iter().flatten() {
            from.uncork();
        }
    }
}
