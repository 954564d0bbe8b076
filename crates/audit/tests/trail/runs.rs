//! Trails that are written, rotated, torn, and removed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hsmux_audit::verify::{FindingKind, TrailVerdict, TrustAnchors, verify};
use hsmux_audit::{Actor, Event, Trail};
use serde_json::{Value, json};

use crate::rig::{Rig, act, is_whole, key_use, remarks, until};

#[test]
fn acts_and_uses_are_lines_and_the_trail_is_whole_at_any_moment() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.commit(act("park")).unwrap();
    let lines = rig.lines("audit.log");
    assert_eq!(lines.len(), 2, "an act is there at once");
    assert_eq!(lines[0]["checkpoint"]["why"], "start");
    assert_eq!(
        (&lines[1]["act"], &lines[1]["token"]),
        (&"park".into(), &"hsm1".into())
    );
    assert_eq!((&lines[1]["seq"], &lines[1]["uid"]), (&2.into(), &7.into()));
    trail.record(
        key_use("web")
            .request("r1")
            .mechanism(Some("CKM_ECDSA".into())),
    );
    until("the use is written", || trail.status().head.seq == 3);
    // The tail has no checkpoint yet: the secret in the state folder proves it.
    is_whole(&rig.verify(&["audit.log"]));
    drop(trail);
    let lines = rig.lines("audit.log");
    assert_eq!(
        (&lines[2]["label"], &lines[2]["request"]),
        (&"web".into(), &"r1".into())
    );
    assert_eq!(
        (&lines[2]["micros"], &lines[2]["outcome"]),
        (&12.into(), &"done".into())
    );
    assert_eq!(lines[3]["checkpoint"]["why"], "stop");
    is_whole(&rig.verify(&["audit.log"]));
    for name in ["audit.log", "audit/signing.key", "audit/head.json"] {
        let mode = rig.path(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn runs_follow_each_other_in_one_chain_and_one_writes_at_a_time() {
    let rig = Rig::new();
    for run in 0..3 {
        let trail = rig.open();
        trail.commit(act(&format!("run {run}"))).unwrap();
        let error = Trail::open(&rig.settings).err().unwrap();
        assert!(error.to_string().contains("another process"), "{error}");
    }
    let report = rig.verify(&["audit.log"]);
    is_whole(&report);
    assert_eq!((report.lines, report.checkpoints), (9, 6));
}

#[test]
fn a_trail_that_is_closed_says_so() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.record(key_use("web"));
    trail.close();
    trail.record(key_use("late"));
    assert!(trail.commit(act("late")).is_err());
    assert!(trail.reopen().is_err());
    assert_eq!(rig.lines("audit.log").len(), 3);
    is_whole(&rig.verify(&["audit.log"]));
}

#[test]
fn lines_of_many_threads_are_all_there() {
    let rig = Rig::new();
    let trail = rig.open();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5000).for_each(|_| trail.record(key_use("web"))));
        }
    });
    drop(trail);
    let report = rig.verify(&["audit.log"]);
    is_whole(&report);
    let uses = rig
        .lines("audit.log")
        .iter()
        .filter(|line| line["call"].is_string())
        .count();
    assert_eq!(uses, 20_000);
    assert!(report.checkpoints > 2, "{report}");
}

#[test]
fn a_checkpoint_comes_after_a_while_and_none_without_lines() {
    let mut rig = Rig::new();
    rig.settings.checkpoint = Duration::from_millis(20);
    let trail = rig.open();
    trail.record(key_use("web"));
    until("a checkpoint", || rig.lines("audit.log").len() == 3);
    assert_eq!(rig.lines("audit.log")[2]["checkpoint"]["why"], "time");
    trail.commit(act("park")).unwrap();
    until("another", || rig.lines("audit.log").len() == 5);
}

#[test]
fn rotated_files_follow_each_other() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.commit(act("one")).unwrap();
    trail.reopen().unwrap();
    assert_eq!(rig.lines("audit.log").len(), 2, "nothing was rotated");
    for number in ["2", "1"] {
        fs::rename(
            rig.path("audit.log"),
            rig.path(&format!("audit.log.{number}")),
        )
        .unwrap();
        trail.commit(act("two")).unwrap();
        trail.reopen().unwrap();
        trail.commit(act("three")).unwrap();
    }
    drop(trail);
    let why = |name: &str, at: usize| rig.lines(name)[at]["checkpoint"]["why"].clone();
    assert_eq!(
        (why("audit.log.2", 3), why("audit.log.1", 0)),
        ("close".into(), "open".into())
    );
    is_whole(&rig.verify(&["audit.log", "audit.log.1", "audit.log.2"]));
    is_whole(&rig.verify(&["audit.log", "audit.log.1"]));
    let report = rig.verify(&["audit.log", "audit.log.2"]);
    assert_eq!(report.findings[0].kind, FindingKind::Missing, "{report}");
}

/// A rotation between two runs: the end of the chain is in a file of another name.
#[test]
fn a_rotation_without_anybody_is_followed_also_after_a_crash() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.commit(act("one")).unwrap();
    let crashed = rig.crash();
    drop(trail);
    fs::rename(crashed.path("audit.log"), crashed.path("audit.log.1")).unwrap();
    crashed.open().commit(act("two")).unwrap();
    let report = crashed.verify(&["audit.log", "audit.log.1"]);
    assert_eq!(remarks(&report), [FindingKind::Unclean], "{report}");
}

#[test]
fn a_line_torn_by_a_crash_is_sealed_and_is_no_tampering() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.commit(act("one")).unwrap();
    let crashed = rig.crash();
    drop(trail);
    let mut text = fs::read(crashed.path("audit.log")).unwrap();
    text.extend_from_slice(b"{\"v\":1,\"seq\":3,\"ti");
    fs::write(crashed.path("audit.log"), &text).unwrap();
    assert_eq!(
        remarks(&crashed.verify(&["audit.log"])),
        [FindingKind::Torn]
    );
    crashed.open().commit(act("two")).unwrap();
    let report = crashed.verify(&["audit.log"]);
    assert_eq!(
        remarks(&report),
        [FindingKind::Torn, FindingKind::Unclean],
        "{report}"
    );
    assert!(
        report.remarks[1].message.contains("cannot be told"),
        "{report}"
    );
    // The rest of the torn line must not change either.
    let text = fs::read_to_string(crashed.path("audit.log")).unwrap();
    fs::write(crashed.path("audit.log"), text.replace("\"ti\n", "\"tu\n")).unwrap();
    assert_eq!(
        crashed.verify(&["audit.log"]).verdict,
        TrailVerdict::Altered
    );
}

/// Between the checkpoint's line and the state folder's word of it: the next start finds the line.
#[test]
fn a_crash_behind_a_checkpoint_is_followed() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.commit(act("one")).unwrap();
    let old = fs::read(rig.path("audit/head.json")).unwrap();
    drop(trail);
    fs::write(rig.path("audit/head.json"), &old).unwrap();
    rig.open().commit(act("two")).unwrap();
    is_whole(&rig.verify(&["audit.log"]));
}

#[test]
fn what_was_done_to_the_trail_between_two_runs_is_found() {
    let rig = Rig::new();
    rig.open().commit(act("one")).unwrap();
    let text = fs::read_to_string(rig.path("audit.log")).unwrap();
    let cut: String = text.split_inclusive('\n').take(2).collect();
    fs::write(rig.path("audit.log"), cut).unwrap();
    let report = rig.verify(&["audit.log"]);
    assert!(
        report.findings[0].message.contains("cut off: lines 3 to 3"),
        "{report}"
    );
    rig.open().commit(act("two")).unwrap();
    let report = rig.verify(&["audit.log"]);
    let kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(
        kinds,
        [FindingKind::Broken, FindingKind::Missing],
        "{report}"
    );
}

/// A trail that somebody takes away is begun again, and what went with it is missed.
#[test]
fn a_trail_that_is_deleted_is_missed() {
    let mut rig = Rig::new();
    rig.settings.checkpoint = Duration::from_millis(1);
    let trail = rig.open();
    trail.commit(act("one")).unwrap();
    fs::remove_file(rig.path("audit.log")).unwrap();
    until("there is a file again", || {
        trail.record(key_use("web"));
        rig.path("audit.log").exists()
    });
    drop(trail);
    let report = rig.verify(&["audit.log"]);
    assert_ne!(report.first, Some(1), "{report}");
}

#[test]
fn a_trail_without_its_state_begins_anew_and_says_so() {
    let rig = Rig::new();
    rig.open().commit(act("one")).unwrap();
    let key = rig.known().keys[0].clone();
    fs::remove_dir_all(rig.path("audit")).unwrap();
    rig.open().commit(act("two")).unwrap();
    let mut known = rig.known();
    known.keys.push(key);
    let report = verify(&[rig.path("audit.log")], known, &|_| ()).unwrap();
    assert!(
        report
            .findings
            .iter()
            .any(|finding| finding.kind == FindingKind::Broken),
        "{report}"
    );
    assert_no_panic_on(&rig.path("audit.log"));
}

/// A service that is taken over sends what makes trouble elsewhere.
#[test]
fn a_line_of_a_hostile_service_is_a_line_as_any_other() {
    let rig = Rig::new();
    let trail = rig.open();
    let hostile = json!({
        "act": "x\n{\"v\":1,\"seq\":2}", "outcome": "\",\"mac\":\"00\"}\n", "v": 2, "seq": 99, "mac": "00",
        "gap": {"lost": 7}, "checkpoint": {"why": "stop"}, "seal": "00", "sig": "00", "time": "1970-01-01T00:00:00Z",
    });
    for _ in 0..3 {
        let event = Event::of_service("broker", hostile.to_string().as_bytes());
        trail.record(event.unwrap());
    }
    trail.commit(act("stop")).unwrap();
    drop(trail);
    is_whole(&rig.verify(&["audit.log"]));
    assert_eq!(rig.lines("audit.log").len(), 6, "with two checkpoints");
}

fn assert_no_panic_on(file: &Path) {
    let report = verify(&[file.to_owned()], TrustAnchors::default(), &|_| ()).unwrap();
    assert_eq!(
        report.verdict,
        TrailVerdict::Altered,
        "no key is known: {report}"
    );
}

/// Every kind of line, against the schema that others write their programs by.
#[test]
fn lines_are_as_the_schema_says() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.announce(act("park").outcome("begun")).unwrap();
    let client = Arc::new(Actor::client("billing", "192.0.2.7:50412"));
    let key_use = Event::key_use(&client, "encrypt", "00ff").request("r1");
    let sent = [key_use.clone(), act("broker-key-rotate").outcome("begun")];
    trail.record(key_use);
    for event in sent {
        trail.record(Event::of_service("broker", &event.to_bytes()).unwrap());
    }
    drop(trail);
    let mut text = fs::read(rig.path("audit.log")).unwrap();
    text.extend_from_slice(b"{\"torn");
    fs::write(rig.path("audit.log"), text).unwrap();
    drop(rig.open());
    let schema = include_str!("../../../../docs/audit-schema.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let lines = rig.lines("audit.log");
    assert!(
        lines
            .iter()
            .any(|line| line["checkpoint"]["torn"].is_object())
    );
    let of_broker = lines.iter().filter(|line| line["service"] == "broker");
    assert_eq!(of_broker.count(), 2);
    for line in lines.iter().filter(|line| !line.is_null()) {
        let errors: Vec<_> = validator.iter_errors(line).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{line:#}");
    }
    assert!(!validator.is_valid(&json!({ "v": 1, "seq": 1 })));
}
