//! PINs are breakers: a PIN that was refused, or whose fate is unknown, is not tried again.

use std::fs;
use std::time::Duration;

use hsmux_suite::{Caller, Rig, Setup, SoftHsm, until};
use serde_json::json;

const PIN_INCORRECT: u64 = 0xa0;

/// SoftHSM says with CKF_USER_PIN_COUNT_LOW that a wrong PIN was tried on a token since its last login.
const COUNT_LOW: u64 = 0x1_0000;

#[test]
fn a_wrong_pin_of_an_application_touches_no_token() {
    let rig = Rig::new(Setup::Daemon);
    let mut program = Caller::start(&rig);
    program.ok("open", json!({"label": "web"}));
    let mut refused = Vec::new();
    for _ in 0..6 {
        refused.push(
            program
                .ask("login", json!({"pin": "not-the-pin"}))
                .unwrap_err(),
        );
    }
    assert_eq!(refused[0], PIN_INCORRECT);
    assert!(refused.iter().all(|rv| *rv != 0), "{refused:x?}");
    for label in ["hsm1", "hsm2", "hsm3"] {
        assert_eq!(flags(&rig, label) & COUNT_LOW, 0, "{label} was touched");
    }
    // Throttled, not locked: the right one works after a while.
    until("the right PIN works", Duration::from_secs(40), || {
        program.ask("login", json!({"pin": rig.pin()})).ok()
    });
    program.ok("sign", json!({}));
}

/// The flags of a token, asked of its own module.
fn flags(rig: &Rig, label: &str) -> u64 {
    let mut bare = Caller::start_on(rig, hsmux_suite::SOFTHSM);
    bare.ok("initialize", json!({}));
    let tokens = bare.ok("tokens", json!({}));
    let token = tokens
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["label"] == label);
    token.expect("the token")["flags"].as_u64().unwrap()
}

#[test]
fn a_wrong_pin_parks_its_token_until_it_changes() {
    let mut rig = Rig::prepare(Setup::Daemon, 3);
    fs::write(rig.path("hsm2.pin"), "not-the-pin").unwrap();
    rig.start_daemon();
    rig.wait_for_members(2);
    rig.hsmux("status").finish().says("hsm2").says("PIN");
    rig.hsmux("doctor").fails().says("hsm2").says("PIN");
    Caller::open(&rig).ok("sign", json!({}));
    rig.stop();

    // The counter is low now. A correct PIN in another program clears that: a further try would show.
    rig.softhsm.tool("hsm2").arg("-O").ok();
    for _ in 0..2 {
        rig.start_daemon();
        rig.wait_for_members(2);
        rig.stop();
    }
    rig.hsmux("token list").finish();
    rig.hsmux("doctor").fails();
    assert_eq!(
        flags(&rig, "hsm2") & COUNT_LOW,
        0,
        "the refused PIN was tried again"
    );

    fs::write(rig.path("hsm2.pin"), SoftHsm::pin("hsm2")).unwrap();
    rig.start();
}
