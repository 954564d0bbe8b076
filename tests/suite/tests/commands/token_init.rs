//! `hsmux token init`: no token is erased that the administrator did not name, see and confirm.

use hsmux_suite::{Rig, Run, SOFTHSM, Setup, SoftHsm, Terminal};
use serde_json::Value;

/// The exit code for wrong arguments.
const USAGE: Option<i32> = Some(2);

/// `hsmux token init` with the rest of its line.
fn init(rig: &Rig, more: &str) -> Run {
    rig.write_pin("so", SoftHsm::SO_PIN);
    rig.hsmux(&format!(
        "token init --module {SOFTHSM} --pin file:hsm1.pin --so-pin file:so.pin {more}"
    ))
}

/// The serial numbers of the tokens with this label, sorted.
fn serials(rig: &Rig, label: &str) -> Vec<String> {
    let list = rig.hsmux(&format!("token list --module {SOFTHSM} --json"));
    let rows: Value = serde_json::from_str(&list.ok().out).expect("JSON");
    let rows = rows.as_array().expect("rows").iter();
    let named = rows.filter(|row| row["label"] == label);
    let mut serials: Vec<_> = named
        .map(|row| row["serial"].as_str().expect("a serial number").to_owned())
        .collect();
    serials.sort();
    serials
}

#[test]
fn a_uri_of_several_tokens_erases_none_of_them() {
    let rig = Rig::empty(Setup::Daemon, 1);
    rig.softhsm.init("dup");
    rig.softhsm.init("dup");
    let both = serials(&rig, "dup");
    assert_eq!(both.len(), 2);
    for erase in ["", "--erase --yes"] {
        let refused = init(&rig, &format!("--label x --uri pkcs11:token=dup {erase}")).fails();
        assert_eq!(refused.code, USAGE, "{refused}");
        refused.says("matches 2 tokens").says("slot-id ");
        for serial in &both {
            refused.says(&format!("--uri pkcs11:serial={serial}"));
        }
    }
    assert_eq!(serials(&rig, "dup"), both);
    // No token has this slot, and it is not left out of the comparison.
    let elsewhere = "--label x --uri pkcs11:slot-description=nowhere --erase --yes";
    init(&rig, elsewhere).fails().says("no token matches");
    let one = format!("--label x --uri pkcs11:serial={} --erase --yes", both[0]);
    init(&rig, &one).ok();
    assert_eq!(serials(&rig, "dup"), both[1..]);
}

#[test]
fn the_label_of_a_token_is_typed_before_it_is_erased() {
    let rig = Rig::prepare(Setup::Daemon, 1);
    let before = serials(&rig, "hsm1");
    let erase = || init(&rig, "--label new --uri pkcs11:token=hsm1 --erase");
    erase()
        .fails()
        .says(&format!(
            "to be erased: \"hsm1\" (serial {}, slot-id ",
            before[0]
        ))
        .says("with all its keys; 5 objects are visible without login")
        .says("needs --yes; nothing was erased");
    let mut wrong = Terminal::start(erase());
    wrong.answer("type its name: ", "y");
    assert!(wrong.fails().contains("nothing was erased"));
    assert_eq!(serials(&rig, "hsm1"), before);
    rig.softhsm.tool("hsm1").arg("-O").ok().says("rsa");
    let mut right = Terminal::start(erase());
    right.answer("type its name: ", "hsm1");
    right.ok();
    assert_eq!(serials(&rig, "hsm1"), [""; 0]);
    assert_eq!(serials(&rig, "new").len(), 1);
}

#[test]
fn a_member_of_the_daemon_is_not_erased() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.start();
    let serial = serials(&rig, "hsm1").remove(0);
    let refused = |uri: &str| {
        let erase = format!("--label new --uri pkcs11:{uri} --erase --yes");
        let refused = init(&rig, &erase).fails();
        assert_eq!(refused.code, USAGE, "{refused}");
        refused
            .says("hsmux token park hsm1")
            .says("hsmux token remove hsm1")
            .says("--force");
    };
    refused("token=hsm1");
    refused(&format!("serial={serial}"));
    // Another token of that label is none, while the member has its own.
    rig.softhsm.init("hsm1");
    let other = serials(&rig, "hsm1").into_iter().find(|it| *it != serial);
    let other = other.expect("the other token's serial number");
    let erase = |uri: &str, more: &str| {
        let line = format!("--label new --uri pkcs11:{uri} --erase --yes {more}");
        init(&rig, &line).ok()
    };
    erase(&format!("serial={other}"), "");
    // The daemon still has what is in its file no more.
    let mut config = rig.config.clone();
    config.members.remove(0);
    std::fs::write(rig.path("hsmux.toml"), config.to_string()).unwrap();
    refused("token=hsm1");
    rig.write_config();
    rig.softhsm.tool("hsm1").arg("-O").ok().says("rsa");

    rig.hsmux("token park hsm1").ok();
    erase("token=hsm1", "");
    erase("token=hsm2", "--force");
    assert_eq!(serials(&rig, "new").len(), 3);
}

/// A member that does not serve now is one all the same.
#[test]
fn a_member_that_does_not_connect_is_not_erased() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.softhsm.init("hsm1");
    rig.start_daemon();
    assert_eq!(rig.members_in("serving"), [""; 0]);
    let both = serials(&rig, "hsm1");
    for serial in &both {
        let erase = format!("--label new --uri pkcs11:serial={serial} --erase --yes");
        init(&rig, &erase).fails().says("hsmux token park hsm1");
    }
    assert_eq!(serials(&rig, "hsm1"), both);
}

#[test]
fn a_label_that_another_token_has_needs_yes() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let refused = init(&rig, "--label hsm1").fails();
    assert_eq!(refused.code, USAGE, "{refused}");
    refused
        .says("pkcs11:token=hsm1 would mean two tokens")
        .says("nothing was done")
        .says("--yes");
    assert_eq!(serials(&rig, "hsm1").len(), 1);
    // A token may keep its label.
    let same = "--label hsm1 --uri pkcs11:token=hsm1 --erase --yes";
    init(&rig, same).ok().never_says("two tokens");
    init(&rig, "--label hsm1 --yes").ok().says("two tokens");
    assert_eq!(serials(&rig, "hsm1").len(), 2);
}
