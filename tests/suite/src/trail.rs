use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::{PATIENCE, Rig, until};

impl Rig {
    /// The current lines of the audit trail, without checkpoints.
    pub fn trail(&self) -> Vec<Value> {
        let trail = self.hsmux("audit --json --lines 10000").ok();
        let lines = trail.out.lines();
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        lines.filter(|line| line["checkpoint"].is_null()).collect()
    }

    /// Replaces the trail's file by a full disk.
    pub fn fill_the_trails_disk(&self) {
        let trail = self.path("state/audit.log");
        fs::rename(&trail, self.path("state/audit.log.1")).expect("the trail");
        symlink("/dev/full", &trail).expect("a full disk");
        self.hsmux("reload").fails().says("No space left");
    }

    /// Removes that, and waits until the trail is written again.
    pub fn make_room_for_the_trail(&self) {
        fs::remove_file(self.path("state/audit.log")).expect("room");
        until("the trail can be written", PATIENCE, || {
            self.status()["audit"]["problem"].is_null().then_some(())
        });
    }
}
