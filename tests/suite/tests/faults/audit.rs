//! The audit trail: a disk that is full, a daemon that is killed, rotations, and hands that touch it.

use std::fs;

use hsmux_suite::{Caller, PATIENCE, Rig, Setup, until};
use serde_json::{Value, json};

/// CKR_DEVICE_MEMORY: the use of a key is refused for want of a trail.
const NO_TRAIL: u64 = 0x31;

/// Exit codes of `hsmux audit verify`.
const ALTERED: Option<i32> = Some(1);
const REMARKS: Option<i32> = Some(3);

/// One member, and a line for each use of a key.
fn rig(more: &str) -> Rig {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.config.module += "\n[audit]\nkeys = true\n";
    rig.config.module += more;
    rig.start();
    rig
}

#[test]
fn a_full_disk_stops_key_use_until_there_is_room() {
    let rig = rig("");
    let mut program = Caller::open(&rig);
    program.ok("sign", json!({}));
    rig.fill_the_trails_disk();
    assert_eq!(program.ask("sign", json!({})), Err(NO_TRAIL));
    rig.hsmux("status")
        .ok()
        .says("cannot be written")
        .says("No space left")
        .says("keys are not used");
    assert_eq!(rig.hsmux("status --check").finish().code, REMARKS);
    rig.make_room_for_the_trail();
    program.ok("sign", json!({}));
    let refused = |line: &Value| line["gap"]["refused"].as_u64() >= Some(1);
    assert!(rig.trail().iter().any(refused), "{:?}", rig.trail());
    // Nothing is lost: who could not be recorded did not get a signature.
    rig.hsmux("audit verify").ok().says("the trail is whole");
}

#[test]
fn or_keys_go_on_and_lost_lines_are_counted() {
    let rig = rig("on_failure = \"continue\"");
    let mut program = Caller::open(&rig);
    rig.fill_the_trails_disk();
    program.ok("sign", json!({}));
    until("a line is lost", PATIENCE, || {
        (rig.status()["audit"]["lost"].as_u64() >= Some(1)).then_some(())
    });
    rig.hsmux("status")
        .ok()
        .says("keys are used all the same")
        .says("lines lost");
    rig.make_room_for_the_trail();
    let verified = rig.hsmux("audit verify").fails();
    assert_eq!(verified.code, REMARKS, "{verified}");
    verified.says("lines were lost").never_says("NOT as");
}

#[test]
fn killed_in_the_middle_it_goes_on_and_is_not_taken_for_tampering() {
    let mut rig = rig("");
    let mut program = Caller::open(&rig);
    program.ok("start_load", json!({"threads": 4}));
    for _ in 0..2 {
        until("signatures", PATIENCE, || {
            let signed = program.ok("progress", json!({}))["signed"].as_u64();
            (signed > Some(50)).then_some(())
        });
        rig.kill();
        // As if the power had gone while it wrote.
        let trail = rig.path("state/audit.log");
        let mut text = fs::read(&trail).unwrap();
        text.extend_from_slice(b"{\"v\":1,\"seq\":");
        fs::write(&trail, text).unwrap();
        rig.start();
    }
    program.ok("stop_load", json!({}));
    rig.stop();
    let verified = rig.hsmux("audit verify").fails();
    assert_eq!(verified.code, REMARKS, "{verified}");
    verified
        .says("not written to its end")
        .says("cannot be told")
        .never_says("NOT as it was written");
}

#[test]
fn rotated_files_are_one_trail() {
    let mut rig = rig("");
    let mut program = Caller::open(&rig);
    let trail = rig.path("state/audit.log");
    for number in [2, 1] {
        program.ok("sign", json!({}));
        fs::rename(&trail, rig.path(&format!("state/audit.log.{number}"))).unwrap();
        rig.reload();
        until("a new file", PATIENCE, || trail.exists().then_some(()));
    }
    program.ok("sign", json!({}));
    rig.hsmux("audit verify").ok();
    rig.stop();
    let report = rig.hsmux("audit verify --json").ok().out;
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["verdict"], "whole");
    assert_eq!(report["files"].as_array().unwrap().len(), 3, "{report}");
    fs::remove_file(rig.path("state/audit.log.1")).unwrap();
    let verified = rig.hsmux("audit verify").fails();
    assert_eq!(verified.code, ALTERED, "{verified}");
    verified.says("are missing");
}

#[test]
fn what_hands_do_to_it_is_found_here_and_elsewhere() {
    let mut rig = rig("");
    let mut program = Caller::open(&rig);
    let key = rig.hsmux("audit key").ok().out;
    fs::write(rig.path("audit.pem"), key).unwrap();
    let seal = rig.hsmux("audit key --seal").ok().out;
    fs::write(rig.path("audit.seal"), seal).unwrap();
    program.ok("sign", json!({}));
    rig.stop();
    let trail = rig.path("state/audit.log");
    let text = fs::read_to_string(&trail).unwrap();
    let at = 1 + text
        .lines()
        .position(|line| line.contains("C_Sign"))
        .expect("a use");
    let elsewhere = format!(
        "--config /nowhere audit verify --key audit.pem {}",
        trail.display()
    );
    rig.hsmux("audit verify --seal audit.seal").ok();
    rig.hsmux(&elsewhere).ok();

    fs::write(&trail, text.replace("C_Sign", "C_Sigh")).unwrap();
    for line in ["audit verify", &elsewhere] {
        let verified = rig.hsmux(line).fails();
        assert_eq!(verified.code, ALTERED, "{verified}");
        verified.says(&format!("audit.log:{at}: line {at} was changed"));
    }
    // Up to a checkpoint all is well by the file alone; the state folder knows of more.
    let count = text.lines().count();
    let cut: Vec<_> = text.split_inclusive('\n').take(count - 1).collect();
    fs::write(&trail, cut.concat()).unwrap();
    let verified = rig.hsmux("audit verify").fails();
    assert_eq!(verified.code, ALTERED, "{verified}");
    verified.says("cut off");
}
