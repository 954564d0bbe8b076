//! `hsmux bench`.

use std::fs;

use hsmux_suite::{Rig, SOFTHSM, Setup};
use serde_json::Value;

#[test]
fn signatures_are_measured_and_verified() {
    let rig = Rig::new(Setup::Daemon);
    let run = rig
        .hsmux("bench sign --key pkcs11:object=ec;type=private --concurrency 4 --count 200 --json")
        .ok();
    let report: Value = serde_json::from_str(&run.out).expect("JSON from hsmux bench sign");
    let measured = &report["measurement"];
    assert_eq!(measured["ops"], 200, "{run}");
    assert_eq!(measured["verified"], 200, "{run}");
    assert_eq!(measured["failed"], 0, "{run}");
    for name in ["min", "mean", "stddev", "p50", "p90", "p99", "p99.9", "max"] {
        assert!(
            measured["latency_us"][name].as_f64() > Some(0.0),
            "{name}\n{run}"
        );
    }
}

#[test]
fn a_module_is_measured_past_the_pool() {
    let rig = Rig::prepare(Setup::Daemon, 1);
    rig.hsmux(&format!(
        "bench sign --direct {SOFTHSM} --token pkcs11:token=hsm1 --key pkcs11:object=ec;type=private"
    ))
    .args("--pin file:hsm1.pin --concurrency 2 --count 100")
    .ok()
    .says("100");
}

#[test]
fn scaling_writes_a_report_that_needs_nothing_else() {
    let rig = Rig::new(Setup::Daemon);
    rig.hsmux("bench scale --tokens 1,2,3 --count 200 --html scale.html")
        .ok();
    let page = fs::read_to_string(rig.path("scale.html")).unwrap();
    assert!(page.contains("<svg"), "no chart");
    for outside in ["<script src", "<link", "http-equiv", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    rig.wait_for_members(3);
}
