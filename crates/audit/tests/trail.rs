//! Trails in a folder: what is written, rotated, broken off, and what a full disk does.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hsmux_audit::verify::{Kind, Known, Report, Verdict, verify};
use hsmux_audit::{Actor, Event, Keeper, OnFailure, Settings, Trail};
use hsmux_token::ck;
use serde_json::{Map, Value};

struct Rig {
    folder: tempfile::TempDir,
    settings: Settings,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            file: folder.path().join("audit.log"),
            state: folder.path().to_owned(),
            uses: true,
            on_failure: OnFailure::Stop,
            checkpoint: Duration::from_secs(3600),
        };
        Self { folder, settings }
    }

    fn open(&self) -> Trail {
        Trail::open(&self.settings).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a crash of the machine would leave, had it happened now.
    fn crash(&self) -> Self {
        let copy = Self::new();
        fs::create_dir(copy.path("audit")).unwrap();
        until("the first checkpoint is kept", || {
            let head = Keeper::of(&self.settings.state).head().unwrap();
            head.is_some_and(|head| head.seq > 0)
        });
        for name in ["audit.log", "audit/signing.key"] {
            fs::copy(self.path(name), copy.path(name)).unwrap();
        }
        let kept = fs::read_to_string(self.path("audit/head.json")).unwrap();
        let folder = |rig: &Self| rig.folder.path().display().to_string();
        let kept = kept.replace(&folder(self), &folder(&copy));
        fs::write(copy.path("audit/head.json"), kept).unwrap();
        copy
    }

    fn known(&self) -> Known {
        let keeper = Keeper::of(&self.settings.state);
        Known {
            keys: vec![keeper.public_key().unwrap()],
            seal: Some(keeper.seal_key().unwrap()),
            head: keeper.head().unwrap(),
            running: false,
        }
    }

    fn verify(&self, names: &[&str]) -> Report {
        let files: Vec<_> = names.iter().map(|name| self.path(name)).collect();
        verify(&files, self.known(), &|_| ()).unwrap()
    }

    fn lines(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        whole
            .map(|line| serde_json::from_str(line).unwrap_or_default())
            .collect()
    }
}

fn actor() -> Arc<Actor> {
    Arc::new(Actor::process(7, 42, "a \"program\""))
}

fn key_use(label: &str) -> Event {
    Event::key_use(&actor(), "C_Sign", "00ff")
        .label(Some(label.into()))
        .took(12)
}

fn act(name: &str) -> Event {
    let mut fields = Map::new();
    fields.insert("token".into(), "hsm1".into());
    fields.insert("seq".into(), "not the line's own".into());
    Event::act(&actor(), name, fields)
}

#[track_caller]
fn until(what: &str, reached: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !reached() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn is_whole(report: &Report) {
    assert_eq!(report.verdict, Verdict::Whole, "{report}");
}

fn remarks(report: &Report) -> Vec<Kind> {
    assert_eq!(report.verdict, Verdict::Remarks, "{report}");
    report.remarks.iter().map(|remark| remark.kind).collect()
}

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
    assert_eq!(report.findings[0].kind, Kind::Missing, "{report}");
}

/// Rotated between two runs, so that the end of the chain is in a file of another name.
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
    assert_eq!(remarks(&report), [Kind::Unclean], "{report}");
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
    assert_eq!(remarks(&crashed.verify(&["audit.log"])), [Kind::Torn]);
    crashed.open().commit(act("two")).unwrap();
    let report = crashed.verify(&["audit.log"]);
    assert_eq!(remarks(&report), [Kind::Torn, Kind::Unclean], "{report}");
    assert!(
        report.remarks[1].message.contains("cannot be told"),
        "{report}"
    );
    // What is left of the line may not be touched either.
    let text = fs::read_to_string(crashed.path("audit.log")).unwrap();
    fs::write(crashed.path("audit.log"), text.replace("\"ti\n", "\"tu\n")).unwrap();
    assert_eq!(crashed.verify(&["audit.log"]).verdict, Verdict::Altered);
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
    assert_eq!(kinds, [Kind::Broken, Kind::Missing], "{report}");
}

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
    // What ran already when it became full, an act that was done, and one that is not.
    trail.record(key_use("running"));
    assert!(trail.commit(act("done")).is_err());
    assert!(trail.announce(act("not done")).is_err());
    let status = trail.status();
    assert!(status.problem.unwrap().contains("No space left"));
    assert_eq!((status.lost, status.refused), (0, 1));
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
fn or_it_does_not_and_lost_lines_are_counted() {
    let mut rig = Rig::new();
    rig.settings.on_failure = OnFailure::Continue;
    let trail = rig.open();
    fill_the_disk(&rig, &trail);
    trail.record(key_use("lost"));
    trail.admit().unwrap();
    // An act that is waited for has the writer try at once.
    assert!(trail.commit(act("done")).is_err());
    assert_eq!((trail.status().lost, trail.status().refused), (1, 0));
    fs::remove_file(rig.path("audit.log")).unwrap();
    until("it is written again", || trail.status().problem.is_none());
    drop(trail);
    let lines = rig.lines("audit.log");
    let gap = lines.iter().find(|line| line["gap"].is_object()).unwrap();
    assert_eq!(gap["gap"]["lost"], 1);
    assert!(lines.iter().any(|line| line["act"] == "done"));
    let report = rig.verify(&["audit.log", "audit.log.1"]);
    assert_eq!(remarks(&report), [Kind::Lost], "{report}");
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
            .any(|finding| finding.kind == Kind::Broken),
        "{report}"
    );
    assert_no_panic_on(&rig.path("audit.log"));
}

fn assert_no_panic_on(file: &Path) {
    let report = verify(&[file.to_owned()], Known::default(), &|_| ()).unwrap();
    assert_eq!(
        report.verdict,
        Verdict::Altered,
        "no key is known: {report}"
    );
}
