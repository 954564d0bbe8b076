//! Members come and go by an administrator's word: what that asks for, what stays, what is taken back.

use std::fs;
use std::net::TcpListener;

use hsmux_suite::{PATIENCE, Process, Rig, SOFTHSM, Setup, until};

/// Two members with a key of the pool.
fn pool() -> Rig {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    rig.hsmux("key generate ec:p256 --label web").ok();
    rig
}

#[test]
fn the_last_member_is_not_parked_by_accident() {
    let rig = pool();
    rig.hsmux("token park hsm2").ok();
    for command in ["token park hsm1", "token remove hsm1"] {
        rig.hsmux(command).fails().says("\"web\"").says("--force");
        assert_eq!(rig.members_in("serving"), ["hsm1"]);
    }
    rig.hsmux("token park hsm1 --force").ok();
    assert_eq!(rig.members_in("parked"), ["hsm1", "hsm2"]);
    rig.hsmux("token resume hsm1 hsm2").ok();
    rig.wait_for_members(2);
}

#[test]
fn a_parked_member_stays_parked_over_a_restart_and_a_reload() {
    let mut rig = pool();
    rig.hsmux("token park hsm2 --reason firmware").ok();
    rig.stop();
    rig.start_daemon();
    rig.wait_for_members(1);
    assert_eq!(rig.members_in("parked"), ["hsm2"]);
    rig.hsmux("status").ok().says("hsm2: firmware");
    // Another setting of the member makes new seats of it.
    rig.config.members[1].more = "sessions = 2".into();
    rig.write_config();
    rig.hsmux("reload").ok().says("hsm2 changed");
    assert_eq!(rig.members_in("parked"), ["hsm2"]);
    rig.hsmux("token resume hsm2").ok();
    rig.wait_for_members(2);
    rig.stop();
    rig.start();
}

#[test]
fn a_token_that_is_not_there_is_not_added() {
    let rig = pool();
    rig.write_pin("none", "12345678");
    let file = || fs::read_to_string(rig.path("hsmux.toml")).unwrap();
    let before = file();
    let line =
        format!("token add hsm3 --module {SOFTHSM} --uri pkcs11:token=none --pin-file none.pin");
    rig.hsmux(&line).fails().says("not added");
    assert_eq!(file().trim_end(), before.trim_end());
    let members = rig.status()["members"].as_array().map(Vec::len);
    assert_eq!(members, Some(2));
}

#[test]
fn what_is_removed_from_the_pool_alone_comes_back_and_is_said_to() {
    let mut rig = pool();
    let said = rig.hsmux("token remove hsm2").ok();
    let advice = "hsmux token remove hsm2 --forget";
    said.says("hsmux.toml").says(advice);
    rig.stop();
    rig.start();
    rig.hsmux("token remove hsm2").ok().says(advice);
    let said = rig.hsmux("token remove hsm2 --forget").ok();
    said.says("out of").says("hsmux.toml");
    let file = fs::read_to_string(rig.path("hsmux.toml")).unwrap();
    assert!(!file.contains("token=hsm2"), "{file}");
}

/// Members that a measurement does without are parked by its word alone, and back however it ends.
#[test]
fn a_measurement_asks_before_it_parks_and_leaves_nobody_parked() {
    let rig = pool();
    rig.hsmux("bench scale --tokens 1,2 --count 10")
        .fails()
        .says("--yes");
    assert_eq!(rig.members_in("serving").len(), 2);
    let run = rig.hsmux("bench scale --yes --tokens 1,2 --time 10m");
    let mut scale = Process::start("scale", &rig.path(""), run);
    until("a member is parked", PATIENCE, || {
        (rig.members_in("parked") == ["hsm2"]).then_some(())
    });
    scale.kill();
    rig.wait_for_members(2);
}

/// A key each of which is on a member that is away is no line each.
#[test]
fn doctor_says_once_what_a_parked_member_means() {
    let rig = pool();
    rig.hsmux("key generate ec:p256 --label mail").ok();
    rig.hsmux("token park hsm2").ok();
    let doctor = rig.hsmux("doctor").fails();
    doctor
        .says("it alone serves 2 keys")
        .never_says("\"web\"")
        .never_says("\"mail\"");
}

#[test]
fn doctor_sees_what_a_start_would_fail_of() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    rig.config.module = format!("[broker]\nlisten = [\"{address}\"]\n");
    rig.write_config();
    rig.hsmux("doctor")
        .fails()
        .says(&format!("[broker] listen {address}"));
    drop(taken);
    rig.hsmux("doctor").fails().never_says("[broker] listen");
    rig.config
        .daemon
        .push_str("state = \"/proc/hsmux/state\"\n");
    rig.write_config();
    rig.hsmux("doctor")
        .fails()
        .says("the state folder cannot be made");
}
