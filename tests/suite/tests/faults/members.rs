//! Members that are missing, wrong or dying, and the pool that goes on without them.

use std::fs;
use std::time::Duration;

use hsmux_suite::{Caller, Member, Rig, Run, Setup, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Three good members and one that is not.
fn with_a_bad_module(module: &str) -> Rig {
    let mut rig = Rig::prepare(Setup::Daemon, 3);
    let module = module.into();
    rig.config.members[1].module = module;
    rig.start_daemon();
    rig.wait_for_members(2);
    rig
}

#[test]
fn a_module_that_is_missing() {
    let rig = with_a_bad_module("/nowhere/libvendor.so");
    Caller::open(&rig).ok("sign", json!({}));
    rig.hsmux("status")
        .finish()
        .says("hsm2")
        .says("/nowhere/libvendor.so");
    rig.hsmux("doctor").fails().says("/nowhere/libvendor.so");
}

#[test]
fn a_library_that_is_no_pkcs11_module() {
    let rig = with_a_bad_module("/lib/x86_64-linux-gnu/libm.so.6");
    Caller::open(&rig).ok("sign", json!({}));
    rig.hsmux("status").finish().says("C_GetFunctionList");
}

#[test]
fn a_token_that_is_absent() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.config.members.push(Member::softhsm("hsm3"));
    fs::copy(rig.path("hsm2.pin"), rig.path("hsm3.pin")).unwrap();
    rig.start_daemon();
    rig.wait_for_members(2);
    Caller::open(&rig).ok("sign", json!({}));
    rig.hsmux("doctor").fails().says("hsm3");
}

/// A private key that is not what its public key says.
#[test]
fn a_key_that_is_another_key() {
    let mut rig = Rig::prepare(Setup::Daemon, 3);
    tool(&rig, "hsm2", "--delete-object --type privkey --id 02").ok();
    rig.run("openssl")
        .args("genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -outform DER -out other.der")
        .ok();
    tool(
        &rig,
        "hsm2",
        "--write-object other.der --type privkey --id 02 --label ec",
    )
    .ok();
    rig.start_daemon();
    rig.wait_for_members(3);
    let mut program = Caller::open(&rig);
    for _ in 0..50 {
        // The caller verifies each one.
        program.ok("sign", json!({}));
    }
    rig.hsmux("key verify").fails().says("hsm2").says("ec");
    rig.hsmux("status")
        .finish()
        .says("hsm2")
        .says("another key");
}

#[test]
fn a_key_deleted_behind_our_back() {
    let rig = Rig::new(Setup::Daemon);
    let mut program = Caller::open(&rig);
    program.ok("start_load", json!({"threads": 4}));
    tool(&rig, "hsm2", "--delete-object --type privkey --id 02").ok();
    until("the replica has left", Duration::from_secs(20), || {
        rig.hsmux("key list --json")
            .ok()
            .out
            .contains("lost")
            .then_some(())
    });
    let load = program.ok("stop_load", json!({}));
    assert_eq!(load["failed"], json!({}), "{load}");
    program.ok("sign", json!({}));
}

#[test]
fn a_worker_killed_under_load() {
    let rig = Rig::new(Setup::Daemon);
    let mut program = Caller::open(&rig);
    program.ok("start_load", json!({"threads": 8}));
    for _ in 0..3 {
        let workers = rig.workers();
        kill(workers[1]);
        until("it is replaced", Duration::from_secs(20), || {
            let now = rig.workers();
            (now.len() == 3 && !now.contains(&workers[1])).then_some(())
        });
        rig.wait_for_members(3);
    }
    let load = program.ok("stop_load", json!({}));
    assert_eq!(load["failed"], json!({}), "{load}");
    assert!(load["signed"].as_u64() > Some(100), "{load}");
}

/// All tokens are taken away and come back: an error within the deadline, then all is well again.
#[test]
fn all_members_gone() {
    let rig = Rig::new(Setup::Daemon);
    let mut program = Caller::open(&rig);
    fs::rename(rig.path("tokens"), rig.path("taken")).unwrap();
    rig.workers().into_iter().for_each(kill);
    program
        .ask("sign", json!({}))
        .expect_err("no member is left");
    fs::rename(rig.path("taken"), rig.path("tokens")).unwrap();
    rig.wait_for_members(3);
    program.ok("sign", json!({}));
}

#[test]
fn parked_resumed_removed_and_added_under_load() {
    let mut rig = Rig::new(Setup::Daemon);
    let mut program = Caller::open(&rig);
    program.ok("start_load", json!({"threads": 4}));
    rig.hsmux("token park hsm1").ok();
    rig.wait_for_members(2);
    rig.hsmux("token resume hsm1").ok();
    rig.wait_for_members(3);
    let third = rig.config.members.pop().unwrap();
    rig.reload();
    rig.wait_for_members(2);
    rig.config.members.push(third);
    rig.reload();
    rig.wait_for_members(3);
    let load = program.ok("stop_load", json!({}));
    assert_eq!(load["failed"], json!({}), "{load}");
}

/// `pkcs11-tool` on one token, past the pool.
fn tool(rig: &Rig, label: &str, line: &str) -> Run {
    rig.softhsm.tool(label).dir(&rig.path("")).args(line)
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    kill_process(pid, Signal::KILL).expect("kill a worker");
}
