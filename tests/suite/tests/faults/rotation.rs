//! PIN rotation that is interrupted half-way, and continued.

use hsmux_suite::{Caller, Rig, Setup, StandIn};
use hsmux_token::ck::{CKR_DEVICE_ERROR, CKR_PIN_INVALID, CKR_PIN_LEN_RANGE};
use serde_json::json;

/// A rotation in which `b` dies at this moment, and then the daemon; started again.
fn broken_off(moment: &str, with_the_daemon: bool) -> (Rig, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a", "b", "c"]);
    rig.start();
    tokens.set("b", &format!("crash_in_set_pin = \"{moment}\""));
    rig.hsmux("pin rotate").fails().says("b");
    tokens.set("b", "");
    if with_the_daemon {
        rig.kill();
        rig.start_daemon();
    }
    Caller::open(&rig).ok("sign", json!({}));
    (rig, tokens)
}

/// Whether the token had the old or the new PIN, continuing finds out with one wrong try at most.
#[test]
fn interrupted_and_continued() {
    for (moment, daemon) in [
        ("before", false),
        ("after", false),
        ("before", true),
        ("after", true),
    ] {
        let (mut rig, tokens) = broken_off(moment, daemon);
        rig.hsmux("pin rotate").ok();
        // What counts is what the next start finds: the PIN files and the tokens agree.
        rig.stop();
        rig.start();
        Caller::open(&rig).ok("sign", json!({}));
        for label in ["a", "b", "c"] {
            let shown = tokens.pins_shown(label);
            let wrong = shown
                .iter()
                .filter(|line| line.contains(" user wrong "))
                .count();
            let most = usize::from(label == "b");
            assert!(wrong <= most, "{moment}, {daemon}: {label}: {shown:?}");
        }
        rig.stop();
    }
}

/// These codes are for nothing but the new PIN.
#[test]
fn a_new_pin_that_a_token_does_not_take_leaves_the_old_one_right() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a", "b"]);
    rig.start();
    for code in [CKR_PIN_LEN_RANGE, CKR_PIN_INVALID] {
        tokens.set("b", &format!("set_pin_error = {code}"));
        rig.hsmux("pin rotate").fails().says("CKR_PIN_");
        tokens.set("b", "");
        rig.stop();
        rig.start();
        Caller::open(&rig).ok("sign", json!({}));
    }
    rig.hsmux("pin rotate").ok();
}

#[test]
fn a_rotation_that_is_repeated_in_vain_costs_one_try() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a", "b"]);
    rig.start();
    tokens.set("b", &format!("set_pin_error = {CKR_DEVICE_ERROR}"));
    for _ in 0..4 {
        rig.hsmux("pin rotate").fails().says("b");
    }
    let shown = tokens.pins_shown("b");
    let wrong = shown.iter().filter(|line| line.contains(" user wrong "));
    assert!(wrong.count() <= 1, "{shown:?}");
}
