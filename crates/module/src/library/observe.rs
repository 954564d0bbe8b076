//! Reports each call before it is made: if a module crashes or hangs at its start, only the name of the call remains.

use std::sync::OnceLock;

static OBSERVER: OnceLock<fn(&'static str)> = OnceLock::new();

/// Calls `observer` with the name of each call before it is made, except uses of keys (the hot path).
/// Only the first observer of a process counts.
pub fn observe(observer: fn(&'static str)) {
    let _ = OBSERVER.set(observer);
}

pub(crate) fn announce(call: &'static str) {
    if let Some(observer) = OBSERVER.get() {
        observer(call);
    }
}
