//! Who is not let in, and what both sides say about it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hsmux_suite::{Caller, OutputSchema, PATIENCE, until};
use serde_json::json;

use crate::pair::{Pair, install, listens};

/// A new certificate for `web1`, by an authority of the user's folder, in place of its own.
fn other_certificate(pair: &Pair, line: &str) {
    pair.user.hsmux(&format!("{line} --out other")).ok();
    install(&pair.user, &pair.user.path("other"));
}

#[test]
fn a_host_that_is_no_peer() {
    let mut pair = Pair::prepare(1, 1);
    pair.peers = "[[peer]]\nname = \"web3\"".to_owned();
    pair.start_node();
    pair.start_user();
    pair.wait_for_reason("no [[peer]] of this host");
    pair.wait_for_logs("no [[peer]]", "no [[peer]]");
    let status = pair.node.hsmux("status --json").ok();
    let status = OutputSchema::read().answer("status", &status);
    assert!(status["refused"][0]["at"].is_string(), "{status}");
    assert_eq!(status["services"][0]["name"], "node");
    assert_eq!(status["peers"][0]["name"], "web3");
    pair.user.hsmux("doctor").fails().says("no [[peer]]");
    // It is let in as soon as the configuration says so.
    pair.peers += "\n[[peer]]\nname = \"web1\"";
    pair.write_node();
    pair.node.hsmux("reload").ok();
    pair.user.wait_for_members(2);
    // And let go when it says so no more.
    pair.peers = String::new();
    pair.write_node();
    pair.node.hsmux("reload").ok();
    pair.wait_for_reason("");
    Caller::open(&pair.user).ok("sign", json!({}));
}

#[test]
fn keys_that_a_peer_may_not_see() {
    let mut pair = Pair::prepare(0, 1);
    pair.peers += "\nkeys = [\"pkcs11:object=ec\"]";
    pair.start_node();
    pair.start_user();
    pair.user.wait_for_members(1);
    let mut program = Caller::open(&pair.user);
    program.ok("sign", json!({}));
    program
        .ask("encrypt", json!({}))
        .expect_err("that key is not shown");
}

#[test]
fn a_certificate_of_another_authority() {
    let mut pair = Pair::prepare(1, 1);
    // Of the same name.
    pair.user.hsmux("node ca init --ca ca2 --name cluster").ok();
    other_certificate(&pair, "node enroll web1 --ca ca2");
    std::fs::copy(pair.user.path("ca/ca.pem"), pair.user.path("node/ca.pem")).unwrap();
    std::fs::copy(
        pair.user.path("ca/revoked.pem"),
        pair.user.path("node/revoked.pem"),
    )
    .unwrap();
    pair.start_node();
    pair.start_user();
    pair.wait_for_reason("another authority");
    pair.wait_for_logs("another authority", "another authority");
    pair.user
        .hsmux("doctor")
        .fails()
        .says("another authority")
        .says("ca.pem");
    pair.node.hsmux("doctor").finish().says("another authority");
}

#[test]
fn a_host_of_another_authority() {
    let mut pair = Pair::prepare(1, 1);
    pair.user.hsmux("node ca init --ca ca2").ok();
    pair.user
        .hsmux("node enroll web2 --ca ca2 --out other")
        .ok();
    install(&pair.node, &pair.user.path("other"));
    pair.start_node();
    pair.start_user();
    pair.wait_for_reason("another authority");
    Caller::open(&pair.user).ok("sign", json!({}));
}

#[test]
fn a_certificate_that_has_expired() {
    let mut pair = Pair::prepare(1, 1);
    other_certificate(&pair, "node enroll web1 --life 1s");
    until("it has expired", PATIENCE, || {
        let list = pair.user.hsmux("node list --json").ok().out;
        let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
        let until = list[2]["until"].as_str().expect("a time");
        let until = humantime::parse_rfc3339(until).expect("RFC 3339");
        let since = until.elapsed().unwrap_or_default();
        (since > Duration::from_secs(1)).then_some(())
    });
    pair.start_node();
    pair.start_user();
    pair.wait_for_reason("has expired");
    pair.wait_for_logs("has expired", "has expired");
    pair.node
        .hsmux("status")
        .ok()
        .says("has expired")
        .says("hsmux node enroll");
}

#[test]
fn a_certificate_for_another_name() {
    let mut pair = Pair::prepare(1, 1);
    pair.member = "name = \"web9\"".to_owned();
    pair.start_node();
    pair.start_user();
    let reason = until("web9 is refused", PATIENCE, || {
        let reason = crate::pair::member(&pair.user, "web9")["reason"].clone();
        reason.as_str().map(str::to_owned)
    });
    assert!(
        reason.contains("another name") && reason.contains("web2"),
        "{reason}"
    );
}

#[test]
fn no_certificate_garbage_and_plain_http() {
    let mut pair = Pair::prepare(0, 1);
    pair.start_node();
    let address = listens(&pair.node);
    for bytes in [&b"GET / HTTP/1.1\r\nHost: web2\r\n\r\n"[..], &[0xa5; 4096]] {
        let mut stream = TcpStream::connect(&address).expect("the port");
        // It may have hung up before all is written.
        let _ = stream.write_all(bytes);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    pair.wait_for_log_of_node("is not TLS");
    let seen = hsmux_suite::Run::new("openssl")
        .args(&format!("s_client -connect {address} -tls1_3 -ign_eof"))
        .input("")
        .finish();
    seen.says("certificate required");
    pair.wait_for_log_of_node("shows no certificate");
    let old = hsmux_suite::Run::new("openssl")
        .args(&format!("s_client -connect {address} -tls1_2 -ign_eof"))
        .input("")
        .finish();
    old.says("alert protocol version");
    // It serves on.
    pair.start_user();
    pair.user.wait_for_members(1);
}
