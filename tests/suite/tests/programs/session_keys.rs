//! Session keys that are used together.

use hsmux_suite::Setup;

#[test]
fn bare() {
    work_together(Setup::Bare, 1);
}

#[test]
fn daemon() {
    work_together(Setup::Daemon, 2);
}

#[test]
fn embedded() {
    work_together(Setup::Embedded, 2);
}

fn work_together(setup: Setup, members: usize) {
    let run = crate::in_turns("session_keys.py", setup, members);
    for name in [
        "generated 0",
        "generated 1",
        "generated 2",
        "derived",
        "agreed",
        "copied",
        "by a public key",
    ] {
        run.says(&format!("{name}: the same key"));
    }
}
