//! Session keys that are used together. The members serve in turns: keys that did not stay together would
//! be found apart at once.

use hsmux_suite::{Rig, Setup, source};

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
    let mut rig = Rig::prepare(setup, members);
    rig.config.pool.push_str("\npolicy = \"round-robin\"");
    rig.write_config();
    if setup == Setup::Daemon {
        rig.start();
    }
    let run = rig
        .run("/usr/bin/python3")
        .arg(source().join("tests/suite/programs/session_keys.py"))
        .arg(rig.module())
        .arg(rig.label())
        .arg(rig.pin())
        .ok();
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
