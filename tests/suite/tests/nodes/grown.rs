//! Tokens that come to the other host after it was connected.

use std::fs;
use std::path::Path;

use hsmux_suite::{Caller, PATIENCE, Rig, until};
use serde_json::{Value, json};

use crate::pair::{Load, Pair};

/// Takes the SoftHSM tokens of a host away, to be brought back by [`bring_back`].
fn take_away(rig: &Rig) {
    fs::rename(rig.path("tokens"), rig.path("away")).expect("move the tokens");
    fs::create_dir(rig.path("tokens")).expect("a folder for tokens");
}

/// Brings back the token of this label; its host tries it at once.
fn bring_back(rig: &Rig, label: &str) {
    let away = fs::read_dir(rig.path("away")).expect("the folder of tokens");
    let folder = away
        .map(|entry| entry.expect("an entry").path())
        .find(|folder| names(folder, label))
        .expect("the token's folder");
    let back = rig.path("tokens").join(folder.file_name().expect("a name"));
    fs::rename(folder, back).expect("bring it back");
    rig.hsmux(&format!("token park {label} --force")).ok();
    rig.hsmux(&format!("token resume {label}")).ok();
}

fn names(folder: &Path, label: &str) -> bool {
    let token = fs::read(folder.join("token.object")).expect("a token of SoftHSM");
    let label = label.as_bytes();
    token.windows(label.len()).any(|window| window == label)
}

/// How many operations `web2` does at once, as `web1` knows it.
fn lanes(pair: &Pair) -> Value {
    let status = pair.user.status();
    let seats = status["pool"]["seats"].as_array().expect("seats");
    let web2 = seats.iter().find(|seat| seat["name"] == "web2");
    web2.expect("a seat")["lanes"].clone()
}

#[test]
fn a_host_whose_only_token_comes_later() {
    let mut pair = Pair::prepare(1, 1);
    take_away(&pair.node);
    pair.start_node_alone();
    pair.start_user();
    pair.user.wait_for_members(2);
    assert_eq!(lanes(&pair), 1, "it has nothing to offer yet");
    let mut load = Load::start(&pair.user);
    load.goes_on();
    bring_back(&pair.node, "hsm1");
    until("web2 serves", PATIENCE, || {
        (pair.member()["served"].as_u64() > Some(20)).then_some(())
    });
    pair.user.hsmux("token park hsm1 --force").ok();
    load.goes_on();
    load.nothing_failed();
    // It was the same connection's place: nothing was lost in between.
    assert_eq!(pair.member()["reason"], Value::Null);
}

#[test]
fn a_host_that_is_alone_in_the_pool_and_whose_token_comes_later() {
    let mut pair = Pair::prepare(0, 1);
    take_away(&pair.node);
    pair.start_node_alone();
    pair.start_user();
    pair.user.wait_for_members(1);
    bring_back(&pair.node, "hsm1");
    let mut program = Caller::open(&pair.user);
    until("a key signs", PATIENCE, || {
        program.ask("sign", json!({})).ok()
    });
    until("a key enciphers", PATIENCE, || {
        program.ask("encrypt", json!({})).ok()
    });
}

#[test]
fn lanes_that_grow() {
    let mut pair = Pair::prepare(0, 2);
    take_away(&pair.node);
    pair.start_node_alone();
    bring_back(&pair.node, "hsm1");
    pair.node.wait_for_members(1);
    pair.start_user();
    pair.user.wait_for_members(1);
    let few = lanes(&pair).as_u64().expect("a number");
    let mut load = Load::start(&pair.user);
    load.goes_on();
    bring_back(&pair.node, "hsm2");
    until("there are more lanes", PATIENCE, || {
        (lanes(&pair).as_u64() > Some(few)).then_some(())
    });
    load.goes_on();
    load.nothing_failed();
}
