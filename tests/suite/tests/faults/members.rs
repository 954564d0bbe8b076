//! Members that are missing, wrong or dying, and the pool that goes on without them.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use hsmux_suite::{Caller, MemberConfig, PATIENCE, Rig, Run, Setup, StandIn, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A pool of two good members and `bad`, which is what `settings` say; not started.
fn with_a_bad_token(settings: &str) -> (Rig, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    rig.stand_in("good", &["good1", "good2"]);
    let mut bad = rig.stand_in("bad", &["bad"]);
    bad.set("bad", settings);
    (rig, bad)
}

/// A pool of two good members and one whose module is this file; started.
fn with_a_bad_module(module: &str) -> Rig {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.config.members.push(MemberConfig {
        module: module.into(),
        ..MemberConfig::softhsm("hsm3")
    });
    rig.write_pin("hsm3", "1234");
    rig.start_daemon();
    rig.wait_for_members(2);
    rig
}

/// Signs in 4 threads until `done`, which is asked again and again; answers what became of it.
fn under_load<T>(rig: &Rig, what: &str, done: impl FnMut() -> Option<T>) -> Value {
    let mut program = Caller::open(rig);
    program.ok("start_load", json!({"threads": 4}));
    until(what, PATIENCE, done);
    program.ok("stop_load", json!({}))
}

fn nothing_failed(load: &Value) {
    assert_eq!(load["failed"], json!({}), "{load}");
    assert!(load["signed"].as_u64() > Some(0), "{load}");
}

#[test]
fn a_module_that_is_missing() {
    let rig = with_a_bad_module("/nowhere/libvendor.so");
    Caller::open(&rig).ok("sign", json!({}));
    rig.hsmux("status")
        .finish()
        .says("hsm3")
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
    let rig = with_a_bad_module(hsmux_suite::SOFTHSM);
    Caller::open(&rig).ok("sign", json!({}));
    rig.hsmux("doctor").fails().says("hsm3");
}

#[test]
fn a_module_that_crashes_in_initialize() {
    let (mut rig, mut bad) = with_a_bad_token("");
    bad.set_module("crash_in_initialize = true");
    rig.start_daemon();
    rig.wait_for_members(2);
    Caller::open(&rig).ok("sign", json!({}));
    rig.hsmux("status").finish().says("bad");
    bad.set_module("");
    rig.wait_for_members(3);
}

#[test]
fn a_module_that_hangs_in_initialize() {
    let (mut rig, mut bad) = with_a_bad_token("");
    bad.set_module("hang_in_initialize = true");
    rig.start_daemon();
    rig.wait_for_members(2);
    Caller::open(&rig).ok("sign", json!({}));
    rig.stop();
}

#[test]
fn a_module_that_crashes_in_sign() {
    let (mut rig, mut bad) = with_a_bad_token("");
    rig.start();
    let mut seen: BTreeSet<_> = rig.workers().into_iter().collect();
    bad.set("bad", "crash_after = 10");
    let load = under_load(&rig, "its worker has died twice", || {
        seen.extend(rig.workers());
        (seen.len() >= 3 + 2).then_some(())
    });
    nothing_failed(&load);
    assert!(rig.daemon.as_mut().unwrap().running());
}

#[test]
fn a_module_that_hangs_in_sign() {
    let (mut rig, mut bad) = with_a_bad_token("");
    rig.config.members[2] = rig.config.members[2].clone().with("timeout = \"2s\"");
    rig.start();
    bad.set("bad", "hang_in_sign = true");
    let load = under_load(&rig, "the member has left", || {
        (rig.members_in("serving").len() == 2).then_some(())
    });
    nothing_failed(&load);
    assert!(load["longest"].as_f64() < Some(30.0), "{load}");
    bad.set("bad", "");
    rig.wait_for_members(3);
}

#[test]
fn a_slow_token_is_not_taken_to_hang() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut card = rig.stand_in("card", &["card"]);
    let member = &mut rig.config.members[0];
    *member = member.clone().with("sessions = 8\ntimeout = \"3s\"");
    rig.start();
    rig.wait_for_members(1);
    let workers = rig.workers();
    // Does one after the other: the last of eight is answered after 4.8 seconds.
    card.set("card", "service_time_us = 600000");
    let mut program = Caller::open(&rig);
    let served = || rig.status()["members"][0]["served"].as_u64();
    let before = served();
    program.ok("start_load", json!({"threads": 8}));
    until("the last has been served", PATIENCE, || {
        (served() > before.map(|before| before + 8)).then_some(())
    });
    nothing_failed(&program.ok("stop_load", json!({})));
    assert_eq!(rig.workers(), workers);
}

/// No call took longer than the pool's deadline, which was five seconds, and what a busy machine adds.
#[track_caller]
fn by_the_deadline(program: &Caller) {
    let longest = program.longest_call();
    assert!(longest < Duration::from_secs(5 + 1), "{longest:?}");
}

#[test]
fn all_hang_and_the_deadline_holds() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a", "b"]);
    rig.config.pool = "deadline = \"5s\"".to_owned();
    // Nobody is found to hang before.
    for member in &mut rig.config.members {
        *member = member.clone().with("timeout = \"2m\"");
    }
    rig.start();
    let mut program = Caller::open(&rig);
    tokens.set_all("hang_in_sign = true");
    program.ask("sign", json!({})).expect_err("nobody answers");
    by_the_deadline(&program);
    tokens.set_all("");
    until("it signs again", PATIENCE, || {
        program.ask("sign", json!({})).ok()
    });
}

#[test]
fn a_token_that_fails_each_operation() {
    let (mut rig, mut bad) = with_a_bad_token("");
    rig.start();
    bad.set("bad", "sign_error = 0x30");
    let load = under_load(&rig, "the member has left", || {
        (rig.members_in("serving").len() == 2).then_some(())
    });
    nothing_failed(&load);
    bad.set("bad", "");
    rig.wait_for_members(3);
}

/// Its public keys are those of the others, its private ones are not.
#[test]
fn a_key_that_is_another_key() {
    let (mut rig, _bad) = with_a_bad_token("wrong_key = true");
    rig.start();
    let mut program = Caller::open(&rig);
    for _ in 0..50 {
        // The caller verifies each one.
        program.ok("sign", json!({}));
    }
    rig.hsmux("key verify").fails().says("bad").says("ec");
    rig.hsmux("status").finish().says("bad").says("another key");
}

/// The same, made with tools on a real token.
#[test]
fn a_key_replaced_on_a_token() {
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
        program.ok("sign", json!({}));
    }
    rig.hsmux("key verify").fails().says("hsm2").says("ec");
}

/// Found out by the signature that fails on it; nobody asks the pool to look.
#[test]
fn a_key_deleted_behind_our_back() {
    let rig = Rig::new(Setup::Daemon);
    assert_eq!(serving_ec(&rig), ["hsm1", "hsm2", "hsm3"]);
    tool(&rig, "hsm2", "--delete-object --type privkey --id 02").ok();
    let load = under_load(&rig, "the replica has left", || {
        (serving_ec(&rig) == ["hsm1", "hsm3"]).then_some(())
    });
    nothing_failed(&load);
}

/// The members that serve the private key `ec`.
fn serving_ec(rig: &Rig) -> Vec<String> {
    let status = rig.status();
    let objects = status["pool"]["objects"].as_array().expect("objects");
    let is_ec = |object: &&Value| object["label"] == "ec" && object["class"] == "private key";
    let members = objects.iter().find(is_ec).map(|object| &object["members"]);
    let members = members.and_then(Value::as_array).into_iter().flatten();
    let mut members: Vec<_> = members
        .filter_map(|m| Some(m.as_str()?.to_owned()))
        .collect();
    members.sort();
    members
}

#[test]
fn a_worker_killed_under_load() {
    let rig = Rig::new(Setup::Daemon);
    for round in 0..3 {
        let workers = rig.workers();
        kill(workers[round]);
        let load = under_load(&rig, "it is replaced", || {
            let now = rig.workers();
            (now.len() == 3 && !now.contains(&workers[round])).then_some(())
        });
        nothing_failed(&load);
        rig.wait_for_members(3);
    }
}

/// More callers than workers of the one token: their operations travel together, and one worker after the
/// other dies with some of them.
#[test]
fn a_worker_killed_with_operations_of_many_callers() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let _token = rig.stand_in("vendor", &["one"]);
    let member = rig.config.members[0].clone();
    rig.config.members[0] = member.with("workers = 2\nsessions = 1");
    rig.start();
    let workers = || -> Vec<u32> {
        let pids = rig.status()["members"][0]["pids"].take();
        serde_json::from_value(pids).expect("process ids")
    };
    let mut program = Caller::open(&rig);
    program.ok("start_load", json!({"threads": 16}));
    for round in 0..4 {
        let both = || Some(workers()).filter(|workers| workers.len() == 2);
        let worker = until("both workers run", PATIENCE, both)[round % 2];
        kill(worker);
        until("it is replaced", PATIENCE, || {
            let now = workers();
            (now.len() == 2 && !now.contains(&worker)).then_some(())
        });
        rig.wait_for_members(1);
    }
    nothing_failed(&program.ok("stop_load", json!({})));
}

/// All tokens are taken away and come back: an error within the deadline, then all is well again.
#[test]
fn all_members_gone() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a", "b"]);
    rig.config.pool = "deadline = \"5s\"".to_owned();
    rig.start();
    let mut program = Caller::open(&rig);
    tokens.set_all("present = false");
    rig.workers().into_iter().for_each(kill);
    let refused = program.ask("sign", json!({}));
    let error = refused.expect_err("no member is left");
    by_the_deadline(&program);
    // CKR_DEVICE_REMOVED; or CKR_FUNCTION_FAILED, where the machine is too busy to notice before the deadline.
    assert!([0x32, 0x6].contains(&error), "CK_RV 0x{error:x}");
    tokens.set_all("");
    rig.wait_for_members(2);
    program.ok("sign", json!({}));
}

#[test]
fn parked_resumed_removed_and_added_under_load() {
    let mut rig = Rig::new(Setup::Daemon);
    let mut program = Caller::open(&rig);
    program.ok("start_load", json!({"threads": 4}));
    rig.hsmux("token park hsm1 --force").ok();
    rig.wait_for_members(2);
    rig.hsmux("token resume hsm1").ok();
    rig.wait_for_members(3);
    let third = rig.config.members.pop().unwrap();
    rig.reload();
    rig.wait_for_members(2);
    rig.config.members.push(third);
    rig.reload();
    rig.wait_for_members(3);
    nothing_failed(&program.ok("stop_load", json!({})));
}

/// A mistake in a configuration that is read again changes nothing.
#[test]
fn reloading_a_wrong_configuration() {
    let mut rig = Rig::new(Setup::Daemon);
    fs::write(rig.path("hsmux.toml"), "[pool]\nlabel = 7\n").unwrap();
    let daemon = rig.daemon.as_mut().unwrap();
    daemon.signal(Signal::HUP);
    daemon.wait_for("hsmux.toml:2");
    rig.write_config();
    rig.wait_for_members(3);
    Caller::open(&rig).ok("sign", json!({}));
}

/// `pkcs11-tool` on one token, past the pool.
fn tool(rig: &Rig, label: &str, line: &str) -> Run {
    rig.softhsm.tool(label).dir(&rig.path("")).args(line)
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    kill_process(pid, Signal::KILL).expect("kill a worker");
}

/// The first program of a daemon is at home on the first member, where nothing else goes on.
#[test]
fn a_member_that_dies_takes_session_keys_with_it_and_new_ones_live_elsewhere() {
    const KEY_HANDLE_INVALID: u64 = 0x60;
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.config.pool.push_str("\npolicy = \"first-available\"");
    rig.start();
    let mut program = Caller::open(&rig);
    let session_key = |label| json!({"label": label, "kind": "secret", "token": false});
    program.ok("generate", session_key("lost"));
    program.ok("encrypt", json!({"label": "lost"}));
    let home = i32::try_from(rig.workers()[0]).unwrap();
    kill_process(Pid::from_raw(home).unwrap(), Signal::KILL).unwrap();
    until("the key is gone", PATIENCE, || {
        let answer = program.ask("encrypt", json!({"label": "lost"}));
        (answer == Err(KEY_HANDLE_INVALID)).then_some(())
    });
    program.ok("generate", session_key("new"));
    rig.wait_for_members(2);
    program.ok("encrypt", json!({"label": "new"}));
}
