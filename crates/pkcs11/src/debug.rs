//! Errors in words, on request by the environment variable HSMUX_DEBUG.

use std::fmt::Display;
use std::sync::OnceLock;

use crate::setup::is_privileged;

/// Writes one line to standard error if HSMUX_DEBUG is set to anything but `0`.
pub fn say(what: &dyn Display) {
    static ON: OnceLock<bool> = OnceLock::new();
    let asked = || std::env::var_os("HSMUX_DEBUG").is_some_and(|value| value != "0");
    if *ON.get_or_init(|| !is_privileged() && asked()) {
        always(what);
    }
}

/// Writes one line to standard error: for mistakes of the set-up, which end C_Initialize.
pub fn always(what: &dyn Display) {
    use std::io::Write;
    // A program without standard error is no reason to fail, or to panic as `eprintln!` does.
    let _ = writeln!(std::io::stderr(), "hsmux: {what}");
}
