//! A disk that is full.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use hsmux_audit::verify::FindingKind;
use hsmux_audit::{OnFailure, Settings, Trail};
use hsmux_token::ck;

use crate::rig::{Rig, act, is_whole, key_use, remarks, until};

/// Replaces the trail by a disk that is full.
fn fill_the_disk(rig: &Rig, trail: &Trail) {
    fs::rename(rig.path("audit.log"), rig.path("audit.log.1")).unwrap();
    symlink("/dev/full", rig.path("audit.log")).unwrap();
    let error = trail.reopen().unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
}

#[test]
fn a_full_disk_stops_key_use_until_there_is_room_and_no_line_is_lost() {
    let rig = Rig::new();
    let trail = rig.open();
    trail.admit().unwrap();
    fill_the_disk(&rig, &trail);
    let refused = trail.admit().unwrap_err();
    assert_eq!(refused.to_rv(), ck::CKR_DEVICE_MEMORY);
    assert!(refused.to_string().contains("No space left"), "{refused}");
    // A use that ran when the disk became full, a completed act, and one that is not done.
    trail.record(key_use("running"));
    assert!(trail.commit(act("done")).is_err());
    assert!(trail.announce(act("not done")).is_err());
    let refused = trail.announce_by_policy(act("not done")).unwrap_err();
    let says = ["No space left", "on_failure = \"continue\""];
    assert!(says.iter().all(|said| refused.to_string().contains(said)));
    let status = trail.status();
    assert!(status.problem.unwrap().contains("No space left"));
    assert_eq!((status.lost, status.refused), (0, 2));
    fs::remove_file(rig.path("audit.log")).unwrap();
    until("keys are used again", || trail.admit().is_ok());
    until("all is written", || trail.status().waiting == 0);
    assert!(trail.status().problem.is_none());
    drop(trail);
    let lines = rig.lines("audit.log");
    let gap = lines.iter().find(|line| line["gap"].is_object()).unwrap();
    assert!(gap["gap"]["refused"].as_u64() >= Some(1), "{gap}");
    assert!(lines.iter().any(|line| line["label"] == "running"));
    assert!(lines.iter().any(|line| line["act"] == "done"));
    assert!(!lines.iter().any(|line| line["act"] == "not done"));
    is_whole(&rig.verify(&["audit.log", "audit.log.1"]));
}

#[test]
fn an_observer_learns_at_once_that_keys_are_not_used_and_why() {
    let rig = Rig::new();
    let trail = Arc::new(rig.open());
    let (tell, told) = channel();
    let seen = Arc::downgrade(&trail);
    trail.observe(Box::new(move || {
        let trail = seen.upgrade().expect("a trail");
        tell.send((trail.wants_uses(), trail.obstacle())).unwrap();
    }));
    fill_the_disk(&rig, &trail);
    let (_, why) = told.try_recv().expect("before the writer's answer");
    let why = why.unwrap();
    assert!(why.contains("No space left"), "{why}");
    assert!(trail.admit().unwrap_err().to_string().contains(&why));
    fs::remove_file(rig.path("audit.log")).unwrap();
    let within = Duration::from_secs(30);
    assert_eq!(told.recv_timeout(within).unwrap(), (true, None));
    let without = Settings {
        uses: false,
        ..rig.settings.clone()
    };
    trail.change(&without);
    trail.change(&without);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(false, None)]);
}

#[test]
fn or_it_does_not_and_lost_lines_are_counted() {
    let mut rig = Rig::new();
    rig.settings.on_failure = OnFailure::Continue;
    let trail = rig.open();
    fill_the_disk(&rig, &trail);
    trail.record(key_use("lost"));
    trail.admit().unwrap();
    // An act that is waited for has the writer try at once.
    assert!(trail.commit(act("done")).is_err());
    trail.announce_by_policy(act("begun")).unwrap();
    assert!(trail.announce(act("not done")).is_err());
    assert_eq!((trail.status().lost, trail.status().refused), (2, 0));
    fs::remove_file(rig.path("audit.log")).unwrap();
    until("it is written again", || trail.status().problem.is_none());
    drop(trail);
    let lines = rig.lines("audit.log");
    let gap = lines.iter().find(|line| line["gap"].is_object()).unwrap();
    assert_eq!(gap["gap"]["lost"], 2);
    assert!(lines.iter().any(|line| line["act"] == "done"));
    assert!(!lines.iter().any(|line| line["act"] == "not done"));
    let report = rig.verify(&["audit.log", "audit.log.1"]);
    assert_eq!(remarks(&report), [FindingKind::Lost], "{report}");
}

#[test]
fn a_disk_that_is_full_at_the_start_is_a_problem_and_no_end() {
    let rig = Rig::new();
    symlink("/dev/full", rig.path("audit.log")).unwrap();
    let trail = rig.open();
    until("it is known", || trail.admit().is_err());
    fs::remove_file(rig.path("audit.log")).unwrap();
    until("keys are used again", || trail.admit().is_ok());
    drop(trail);
    is_whole(&rig.verify(&["audit.log"]));
}

#[test]
fn a_reload_does_not_admit_uses_while_the_disk_is_full() {
    let rig = Rig::new();
    let trail = rig.open();
    fill_the_disk(&rig, &trail);
    // The file is in its place, so nothing is written.
    trail.reopen().unwrap();
    assert!(trail.status().problem.is_some());
    trail.admit().unwrap_err();
}

/// More lines wait than are written at once.
#[test]
fn acts_are_refused_and_the_trail_closes_while_many_lines_wait() {
    let rig = Rig::new();
    let trail = rig.open();
    fill_the_disk(&rig, &trail);
    (0..25_000).for_each(|_| trail.record(key_use("waits")));
    assert!(trail.announce(act("not done")).is_err());
    assert!(trail.commit(act("done")).is_err());
    assert_eq!(trail.waiting(), 25_001);
    trail.close();
}
