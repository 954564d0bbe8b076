//! What another host's tokens do for this one.

use hsmux_suite::{Caller, PATIENCE, until};
use serde_json::json;

use crate::pair::{FILES, Load, Pair, listens, member};

#[test]
fn all_kinds_of_keys_of_another_host() {
    let pair = Pair::start(0, 1);
    let mut program = Caller::open(&pair.user);
    program.ok("sign", json!({}));
    program.ok("encrypt", json!({}));
    for line in [
        "--sign --id 01 --mechanism SHA256-RSA-PKCS --input-file hsmux.toml --output-file s",
        "--verify --id 01 --mechanism SHA256-RSA-PKCS --input-file hsmux.toml --signature-file s",
    ] {
        let folder = pair.user.path("");
        pair.user.pkcs11_tool(line).dir(&folder).ok();
    }
    assert!(pair.member()["served"].as_u64() >= Some(4));
    assert_eq!(pair.node.status()["peers"][0]["name"], "web1");
    assert!(pair.node.status()["peers"][0]["connections"].as_u64() > Some(1));
}

#[test]
fn work_is_shared_between_local_and_remote_tokens() {
    let pair = Pair::start(1, 2);
    let mut load = Load::start(&pair.user);
    until("both have served", PATIENCE, || {
        let served = |name| member(&pair.user, name)["served"].as_u64();
        (served("hsm1") > Some(20) && served("web2") > Some(20)).then_some(())
    });
    load.goes_on();
    load.nothing_failed();
}

#[test]
fn another_hosts_tokens_are_used_and_not_changed() {
    let pair = Pair::start(1, 1);
    let mut program = Caller::open(&pair.user);
    program.ok("generate", json!({"label": "new"}));
    let objects = |rig: &hsmux_suite::Rig| rig.hsmux("key list --json").ok().out;
    assert!(objects(&pair.user).contains("\"new\""));
    assert!(!objects(&pair.node).contains("\"new\""));
    // It is on the local token alone, and is known not to be on the other.
    program.ok("sign", json!({"label": "new"}));
    program.ok("destroy", json!({"kind": "private", "label": "new"}));
}

/// Changes are for tokens of this host, whatever is on others.
#[test]
fn a_certificate_of_another_host_keeps_none_from_this_one() {
    let pair = Pair::start(1, 1);
    for (rig, label) in [(&pair.node, "there"), (&pair.user, "here")] {
        rig.hsmux(&format!("key generate ec:p256 --label {label} --id 77"))
            .ok();
        let csr = format!("key csr --label {label} --subject CN=www.test --out web.csr");
        rig.hsmux(&csr).ok();
        rig.certify("web.csr", "web.crt");
    }
    pair.node.hsmux("key cert import web.crt").ok();
    until("the other host's certificate is known", PATIENCE, || {
        let listed = pair.user.hsmux("key list").ok().out;
        let mut lines = listed.lines();
        lines
            .any(|line| line.contains("there") && line.contains("certificate"))
            .then_some(())
    });
    pair.user.hsmux("key cert import web.crt").ok();
    // Two keys have the id; who is asked for one names both.
    let unclear = pair
        .user
        .hsmux("key csr --id 77 --subject CN=www.test --out web.csr");
    let unclear = unclear.fails();
    unclear.says("\"here\" (id 77)").says("\"there\" (id 77)");
}

#[test]
fn a_pool_of_another_hosts_tokens_alone_makes_no_key() {
    let pair = Pair::start(0, 1);
    let mut program = Caller::open(&pair.user);
    program
        .ask("generate", json!({"label": "new"}))
        .expect_err("no token of this host");
    // Session objects are no change of a token.
    program.ok("generate", json!({"label": "passing", "token": false}));
}

#[test]
fn keys_that_come_to_the_other_host_are_known_here() {
    let pair = Pair::start(0, 1);
    pair.node.hsmux("key generate ec:p256 --label later").ok();
    let mut program = Caller::open(&pair.user);
    until("the key signs here", PATIENCE, || {
        program.ask("sign", json!({"label": "later"})).ok()
    });
}

/// Each has the other as a member: a request goes one way, and not round and round.
#[test]
fn two_hosts_that_use_each_other() {
    let mut pair = Pair::prepare(1, 1);
    let back = crate::cable::Cable::lay();
    let peer = |name: &str, to: &crate::cable::Cable| {
        let to = to.address();
        format!(
            "\n[node]\nlisten = [\"127.0.0.1:0\"]\n{FILES}\n[[peer]]\nname = \"{name}\"\n\
             [[token]]\nnode = \"{to}\"\nname = \"{name}\"\n"
        )
    };
    pair.user.config.module = peer("web2", &pair.cable);
    pair.node.config.module = peer("web1", &back);
    pair.user.start_daemon();
    pair.node.start_daemon();
    pair.cable.lead_to(&listens(&pair.node));
    back.lead_to(&listens(&pair.user));
    pair.user.wait_for_members(2);
    pair.node.wait_for_members(2);
    let mut program = Caller::open(&pair.user);
    pair.user.hsmux("token park hsm1 --force").ok();
    program.ok("sign", json!({}));
    pair.node.hsmux("token park hsm1 --force").ok();
    until("nobody serves", PATIENCE, || {
        program.ask("sign", json!({})).err()
    });
    pair.user.hsmux("token resume hsm1").ok();
    until("it signs again", PATIENCE, || {
        program.ask("sign", json!({})).ok()
    });
}
