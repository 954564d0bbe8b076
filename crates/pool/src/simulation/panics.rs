//! Panics of simulated threads are failures of the simulation, also those that the pool catches.

use std::panic;
use std::sync::Once;

/// Has panics of simulations noted from now on.
pub(super) fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            super::executor::failed(&format!("a panic: {info}"));
            before(info);
        }));
    });
}
