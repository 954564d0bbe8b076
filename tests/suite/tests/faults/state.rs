//! The state folder: where it cannot be written there is no login, for nobody could tell afterwards.

use std::fs;
use std::path::PathBuf;

use hsmux_suite::{Caller, Rig, Setup};
use serde_json::json;

/// Leaves no room for the drafts by which records of PINs are written.
fn block_the_drafts(rig: &Rig) -> Vec<PathBuf> {
    let records = fs::read_dir(rig.path("state/pins")).unwrap();
    let records = records.map(|entry| entry.unwrap().path());
    let is_record = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "json");
    let drafts: Vec<_> = records
        .filter(is_record)
        .map(|record| record.with_extension("json.new"))
        .collect();
    for draft in &drafts {
        fs::create_dir(draft).unwrap();
    }
    drafts
}

#[test]
fn where_no_record_can_be_written_nobody_logs_in() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.start();
    rig.stop();
    let drafts = block_the_drafts(&rig);
    assert_eq!(drafts.len(), 2, "{drafts:?}");
    rig.start_daemon();
    rig.hsmux("status").finish().says("Is a directory");
    let mut program = Caller::open(&rig);
    assert_eq!(program.ok("objects", json!({})), json!([]));
    for draft in drafts {
        fs::remove_dir(draft).unwrap();
    }
    rig.wait_for_members(2);
    program.ok("sign", json!({}));
    rig.stop();
}
