//! Hosts whose certificates are taken back.

use std::time::{Duration, Instant};

use hsmux_suite::{Caller, PATIENCE, until};
use serde_json::json;

use crate::pair::{Load, Pair, install, install_list};

/// Files are looked at twice a second; a busy machine takes longer.
const AT_ONCE: Duration = Duration::from_secs(5);

/// How many connections `web2` has with `web1`.
fn connections(pair: &Pair) -> u64 {
    let peer = &pair.node.status()["peers"][0];
    peer["connections"].as_u64().expect("a number")
}

#[test]
fn a_peer_that_is_revoked_is_out_and_stays_out() {
    let mut pair = Pair::start(1, 1);
    let mut load = Load::start(&pair.user);
    load.goes_on();
    assert!(connections(&pair) > 0);
    pair.user.hsmux("node revoke web1").ok();
    install_list(&pair.user, &pair.node);
    let known = Instant::now();
    pair.wait_for_reason("was revoked");
    assert!(known.elapsed() < AT_ONCE, "{:?}", known.elapsed());
    pair.wait_for_logs("was revoked", "was revoked");
    assert_eq!(connections(&pair), 0);
    load.goes_on();
    load.nothing_failed();
    // With another certificate it is let in again, without a restart.
    pair.user.hsmux("node enroll web1 --out again").ok();
    install(&pair.user, &pair.user.path("again"));
    until("it is back", PATIENCE, || {
        (pair.member()["state"] == "serving").then_some(())
    });
}

#[test]
fn hosts_of_an_authority_that_is_replaced_are_out() {
    let pair = Pair::start(1, 1);
    pair.user.hsmux("node ca init --ca ca2 --name another").ok();
    pair.user
        .hsmux("node enroll web2 --ca ca2 --out other")
        .ok();
    install(&pair.node, &pair.user.path("other"));
    pair.wait_for_reason("another authority");
    Caller::open(&pair.user).ok("sign", json!({}));
}

/// The one that uses it closes the connections that are there, under load.
#[test]
fn a_host_that_is_revoked_is_not_used_any_more() {
    let pair = Pair::start(1, 1);
    let serial = {
        let list = pair.user.hsmux("node list --json").ok().out;
        let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
        list[1]["serial"]
            .as_str()
            .expect("a serial number")
            .to_owned()
    };
    let mut load = Load::start(&pair.user);
    load.goes_on();
    assert!(connections(&pair) > 0);
    pair.user.hsmux(&format!("node revoke {serial}")).ok();
    install_list(&pair.user, &pair.user);
    let known = Instant::now();
    pair.wait_for_reason("was revoked");
    until("its connections are closed", PATIENCE, || {
        (connections(&pair) == 0).then_some(())
    });
    assert!(known.elapsed() < AT_ONCE, "{:?}", known.elapsed());
    load.goes_on();
    load.nothing_failed();
}
