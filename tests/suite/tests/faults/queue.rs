//! More callers than a pool has places for.

use hsmux_suite::{Caller, PATIENCE, Rig, Setup, until};
use serde_json::{Value, json};

use crate::daemon::AT_ONCE;

/// CKR_FUNCTION_FAILED of the call.
const BUSY: &str = "C_Sign 0x6";

/// Tokens so slow that nothing is done before the test says so: what is refused by then has not waited.
#[test]
fn callers_past_a_full_queue_are_refused_at_once_and_the_others_are_served() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a", "b"]);
    for member in &mut rig.config.members {
        *member = member.clone().with("sessions = 1\ntimeout = \"10m\"");
    }
    rig.config.pool = "deadline = \"10m\"\nqueue = 3".to_owned();
    rig.start();
    let mut program = Caller::open(&rig);
    tokens.set_all("hang_in_sign = true");
    // Each token has one, three wait, and of ten callers that leaves five.
    program.ok("start_load", json!({"threads": 10, "once": true}));
    let refused = |load: &Value| load["failed"][BUSY].as_u64();
    let load = until("five are refused", PATIENCE, || {
        let load = program.ok("progress", json!({}));
        (refused(&load) >= Some(5)).then_some(load)
    });
    assert_eq!(load["signed"], 0, "{load}");
    let longest = load["longest_refusal"].as_f64().expect("seconds");
    assert!(longest < AT_ONCE.as_secs_f64(), "{load}");
    assert_eq!(rig.status()["pool"]["waiting"], 3);

    tokens.set_all("");
    let load = program.ok("stop_load", json!({}));
    assert_eq!(load["signed"], 5, "{load}");
    assert_eq!(load["failed"], json!({BUSY: 5}), "{load}");
    // There is room again.
    program.ok("sign", json!({}));
}
