//! What serves hosts is a process of its own: it may end, stand still or be somebody else's, and the daemon goes on.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use hsmux_suite::{Caller, PATIENCE, Run, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::pair::{Load, Pair};

/// The process that serves hosts, as the daemon's status has it.
fn service(pair: &Pair) -> Value {
    pair.node.status()["services"][0].clone()
}

fn pid(service: &Value) -> Pid {
    let pid = service["pid"].as_i64().expect("a process");
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

#[test]
fn one_that_is_killed_is_started_again_and_nobody_else_notices() {
    let mut pair = Pair::start(1, 2);
    let own = Load::start(&pair.node);
    let far = Load::start(&pair.user);
    let before = service(&pair);
    assert_eq!(before["name"], "node");
    assert_eq!(before["state"], "serving");
    kill_process(pid(&before), Signal::KILL).unwrap();
    let after = until("it is started again", PATIENCE, || {
        let now = service(&pair);
        (now["state"] == "serving" && now["restarts"] == 1).then_some(now)
    });
    assert!(after["problem"].as_str().unwrap().contains("signal: 9"));
    pair.wait_for_log_of_node("the node has ended: ");
    // It listens at the same address, which the system has chosen at the first start.
    pair.user.wait_for_members(2);
    pair.node.hsmux("restart node").ok();
    assert_ne!(service(&pair)["pid"], after["pid"]);
    pair.user.wait_for_members(2);
    own.nothing_failed();
    far.nothing_failed();
}

#[test]
fn one_that_stands_still_keeps_nothing_from_the_daemon() {
    let pair = Pair::start(1, 1);
    let stopped = pid(&service(&pair));
    kill_process(stopped, Signal::STOP).unwrap();
    let mut program = Caller::open(&pair.node);
    program.ok("sign", json!({}));
    pair.node.reload();
    assert_eq!(service(&pair)["state"], "serving");
    // The other host goes on with its own token.
    let mut user = Caller::open(&pair.user);
    until("the other host signs", PATIENCE, || {
        user.ask("sign", json!({})).ok()
    });
    let mut pair = pair;
    // It is killed in the end.
    pair.node.stop();
    assert!(!hsmux_suite::running(
        stopped.as_raw_nonzero().get().unsigned_abs()
    ));
}

#[test]
fn one_without_its_daemon_ends() {
    let mut pair = Pair::start(1, 1);
    let left = pid(&service(&pair)).as_raw_nonzero().get().unsigned_abs();
    pair.node.kill();
    until("it has ended", PATIENCE, || {
        (!hsmux_suite::running(left)).then_some(())
    });
}

/// Nobody's number: a user without files.
const NOBODY: u32 = 65534;

#[test]
fn one_of_another_user_reads_no_pin_and_no_token() {
    let mut pair = Pair::prepare(0, 1);
    pair.more = format!("user = {NOBODY}");
    // The folder lets others pass, and `node` is theirs.
    let passes = Permissions::from_mode(0o711);
    fs::set_permissions(pair.node.path(""), passes).unwrap();
    let folder = pair.node.path("node");
    let files = fs::read_dir(&folder).unwrap();
    for file in files.map(|file| file.unwrap().path()).chain([folder]) {
        chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    pair.start_node();
    pair.start_user();
    pair.user.wait_for_members(1);
    Caller::open(&pair.user).ok("sign", json!({}));
    let pid = pid(&service(&pair)).as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    let ids: Vec<String> = line("Uid:");
    assert_eq!(ids, vec![NOBODY.to_string(); 4]);
    let groups: Vec<String> = line("Groups:");
    assert!(groups.is_empty(), "{groups:?}");
    let none: Vec<String> = line("CapEff:");
    assert_eq!(none, ["0000000000000000"]);
    let inside = |folder: &Path| {
        let mut entries = fs::read_dir(folder).unwrap();
        entries.next().expect("something").unwrap().path()
    };
    let object = inside(&inside(&pair.node.path("tokens")));
    let secrets = ["hsm1.pin", "pool.pin", "state"].map(|path| pair.node.path(path));
    for file in secrets.into_iter().chain([object]) {
        let head = format!("--reuid {NOBODY} --regid {NOBODY} --clear-groups head -c1");
        let read = Run::new("setpriv").args(&head).arg(file);
        read.fails().says("Permission denied");
    }
}
