//! The state folder: where it cannot be written there is no login, for nobody could tell afterwards.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use hsmux_suite::{Caller, Rig, Setup};
use serde_json::json;

/// Has each record of a PIN, which is written as a draft first, written to a disk that is full.
fn fill_the_disk(rig: &Rig) -> Vec<PathBuf> {
    let records = fs::read_dir(rig.path("state/pins")).unwrap();
    let records = records.map(|entry| entry.unwrap().path());
    let is_record = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "json");
    let drafts: Vec<_> = records
        .filter(is_record)
        .map(|record| record.with_extension("new"))
        .collect();
    for draft in &drafts {
        symlink("/dev/full", draft).unwrap();
    }
    drafts
}

#[test]
fn a_full_disk_means_no_login() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.start();
    rig.stop();
    let drafts = fill_the_disk(&rig);
    assert_eq!(drafts.len(), 2, "{drafts:?}");
    rig.start_daemon();
    rig.hsmux("status").finish().says("No space left");
    let mut program = Caller::open(&rig);
    assert_eq!(program.ok("objects", json!({})), json!([]));
    for draft in drafts {
        fs::remove_file(draft).unwrap();
    }
    rig.wait_for_members(2);
    program.ok("sign", json!({}));
    rig.stop();
}
