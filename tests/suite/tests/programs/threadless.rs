//! The module starts no thread in a program, whoever serves it.

use std::time::{Duration, Instant};

use hsmux_suite::{Caller, PATIENCE, Rig, Setup, until};
use rustix::process::Signal;
use serde_json::json;

const NOT_INITIALIZED: u64 = 0x190;

#[test]
fn a_program_has_the_threads_that_it_had_before() {
    let rig = Rig::new(Setup::Daemon);
    let mut program = Caller::start(&rig);
    let loaded = program.ask("tokens", json!({}));
    assert_eq!(loaded, Err(NOT_INITIALIZED), "the module is loaded alone");
    let before = program.threads();
    program.ok("open", json!({"label": rig.label(), "pin": rig.pin()}));
    program.ok("sign", json!({}));
    program.ok("encrypt", json!({}));
    assert_eq!(program.threads(), before);
    program.ok("start_load", json!({"threads": 1}));
    until("a worker serves it directly", PATIENCE, || {
        goes_on_without_the_daemon(&rig, &mut program).then_some(())
    });
    assert_eq!(program.threads(), before + 1, "the load's alone is new");
    let load = program.ok("stop_load", json!({}));
    assert_eq!(load["failed"], json!({}), "{load}");
    until("the load's thread has ended", PATIENCE, || {
        (program.threads() == before).then_some(())
    });
}

/// Whether the load signs while the daemon stands still: more than may be on its way at that moment. Before, it has
/// signed as much with it.
fn goes_on_without_the_daemon(rig: &Rig, program: &mut Caller) -> bool {
    let mut signs_more = |within: Duration| {
        let mut signed = || program.ok("progress", json!({}))["signed"].as_u64();
        let goal = signed().map(|signed| signed + 300);
        let deadline = Instant::now() + within;
        while signed() < goal && Instant::now() < deadline {}
        signed() >= goal
    };
    assert!(signs_more(PATIENCE), "it signs with the daemon");
    let daemon = rig.daemon.as_ref().expect("a daemon");
    daemon.signal(Signal::STOP);
    let goes_on = signs_more(Duration::from_secs(5));
    daemon.signal(Signal::CONT);
    goes_on
}
