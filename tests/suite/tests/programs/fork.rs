//! Programs that fork. Bare SoftHSM is no measure here: its children share what they must not.

use hsmux_suite::{Caller, PATIENCE, Rig, Setup, until};
use serde_json::json;

const NOT_INITIALIZED: u64 = 0x190;

#[test]
fn a_child_initialises_again() {
    for setup in [Setup::Daemon, Setup::Embedded] {
        let rig = Rig::new(setup);
        let mut parent = Caller::open(&rig);
        for _ in 0..3 {
            let child = parent.ok("fork", json!({"again": true}));
            assert!(child["ok"].is_string(), "{setup:?}: {child}");
            assert_eq!(child["kept"], json!([]), "{setup:?}: {child}");
            parent.ok("sign", json!({}));
        }
    }
}

#[test]
fn a_child_that_does_not_is_told_so() {
    for setup in [Setup::Daemon, Setup::Embedded] {
        let rig = Rig::new(setup);
        let mut parent = Caller::open(&rig);
        let child = parent.ok("fork", json!({"again": false}));
        assert_eq!(child["rv"], NOT_INITIALIZED, "{setup:?}: {child}");
        assert_eq!(child["kept"], json!([]), "{setup:?}: {child}");
        parent.ok("sign", json!({}));
    }
}

/// The worst moment: other threads of the parent are in the middle of calls.
#[test]
fn a_child_of_a_busy_parent_initialises_again() {
    for setup in [Setup::Daemon, Setup::Embedded] {
        let rig = Rig::new(setup);
        let mut parent = Caller::open(&rig);
        parent.ok("start_load", json!({"threads": 4}));
        for again in [true, false, true] {
            goes_on(&mut parent);
            let child = parent.ok("fork", json!({"again": again}));
            let fine = child["ok"].is_string() && again || child["rv"] == NOT_INITIALIZED && !again;
            assert!(fine, "{setup:?}: {child}");
            assert_eq!(child["kept"], json!([]), "{setup:?}: {child}");
        }
        goes_on(&mut parent);
        let load = parent.ok("stop_load", json!({}));
        assert_eq!(load["failed"], json!({}), "{setup:?}: {load}");
    }
}

/// Waits until the load has signed some more.
fn goes_on(parent: &mut Caller) {
    let mut signed = || parent.ok("progress", json!({}))["signed"].as_u64();
    let before = signed();
    until("the load goes on", PATIENCE, || {
        (signed() > before.map(|before| before + 10)).then_some(())
    });
}
