//! Says which call comes next: when a module crashes or hangs while it starts, the name of the
//! call is all that is left to tell.

use std::sync::OnceLock;

static OBSERVER: OnceLock<fn(&'static str)> = OnceLock::new();

/// Names each vendor's call before it is made, in this process from now on; those that only use a
/// key apart, which are the hot path. The first observer stays.
pub fn observe(observer: fn(&'static str)) {
    let _ = OBSERVER.set(observer);
}

pub(crate) fn announce(call: &'static str) {
    if let Some(observer) = OBSERVER.get() {
        observer(call);
    }
}
