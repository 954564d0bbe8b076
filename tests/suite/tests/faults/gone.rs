//! Programs that are killed while they wait for what they have asked for.

use hsmux_suite::{Caller, PATIENCE, Rig, Setup, until};
use serde_json::json;

#[test]
fn what_a_killed_program_has_asked_for_leaves_the_queue() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a", "b"]);
    for member in &mut rig.config.members {
        // A call that hangs is this test's doing, and so are those that wait behind it.
        *member = member.clone().with("timeout = \"10m\"");
    }
    rig.config.pool = "deadline = \"10m\"".to_owned();
    rig.start();
    let (mut killed, mut other) = (Caller::open(&rig), Caller::open(&rig));
    tokens.set_all("hang_in_sign = true");
    let wait_for = |count: u64| {
        until(&format!("{count} wait"), PATIENCE, || {
            let waiting = rig.status()["pool"]["waiting"].as_u64();
            (waiting == Some(count)).then_some(())
        });
    };
    // Of each token four operations run at once.
    killed.ok("start_load", json!({"threads": 20}));
    wait_for(12);
    other.ok("start_load", json!({"threads": 3}));
    wait_for(15);
    drop(killed);
    wait_for(3);
    tokens.set_all("");
    until("others are served", PATIENCE, || {
        let progress = other.ok("progress", json!({}));
        (progress["signed"].as_u64() > Some(20)).then_some(())
    });
    let load = other.ok("stop_load", json!({}));
    assert_eq!(load["failed"], json!({}), "{load}");
}
