//! Hosts that die, are cut off, and come back, under load.

use std::time::{Duration, Instant};

use hsmux_suite::{Caller, PATIENCE, until};
use serde_json::json;

use crate::pair::{Load, Pair};

/// A host that is cut off is noticed within seconds; a busy machine may take its time.
const SECONDS: Duration = Duration::from_secs(60);

fn serves(pair: &Pair) -> bool {
    pair.member()["state"] == "serving"
}

#[test]
fn a_host_that_is_killed_takes_no_request_with_it() {
    let mut pair = Pair::start(1, 1);
    let mut load = Load::start(&pair.user);
    load.goes_on();
    pair.node.kill_to_the_last();
    until("it is noticed", PATIENCE, || (!serves(&pair)).then_some(()));
    load.goes_on();
    pair.start_node();
    until("it is back", PATIENCE, || serves(&pair).then_some(()));
    load.goes_on();
    load.nothing_failed();
}

#[test]
fn a_host_that_is_restarted_takes_no_request_with_it() {
    let mut pair = Pair::start(1, 1);
    let mut load = Load::start(&pair.user);
    load.goes_on();
    pair.node.stop();
    load.goes_on();
    pair.start_node();
    until("it is back", PATIENCE, || serves(&pair).then_some(()));
    load.nothing_failed();
}

#[test]
fn a_host_that_is_cut_off_goes_on_with_its_own_tokens() {
    let mut pair = Pair::prepare(1, 1);
    // Nobody waits for a time-out: what runs there moves when the host is taken for dead.
    pair.member += "\ntimeout = \"10m\"";
    pair.user.config.pool = "deadline = \"20m\"".to_owned();
    pair.start_node();
    pair.start_user();
    pair.user.wait_for_members(2);
    let mut load = Load::start(&pair.user);
    load.goes_on();
    pair.cable.cut();
    let cut = Instant::now();
    pair.wait_for_reason("has not answered");
    assert!(cut.elapsed() < SECONDS, "{:?}", cut.elapsed());
    load.goes_on();
    pair.cable.mend();
    until("it is back", PATIENCE, || serves(&pair).then_some(()));
    load.goes_on();
    load.nothing_failed();
}

#[test]
fn a_host_that_comes_later_is_waited_for() {
    let mut pair = Pair::prepare(0, 1);
    pair.start_user();
    pair.wait_for_reason("closed the connection");
    pair.start_node();
    pair.user.wait_for_members(1);
    Caller::open(&pair.user).ok("sign", json!({}));
}
