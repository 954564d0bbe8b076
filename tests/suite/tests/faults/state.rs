//! The state folder: where it cannot be written there is no login, for nobody could tell afterwards.

use std::fs;
use std::path::PathBuf;

use hsmux_suite::{Caller, Rig, Run, Setup};
use serde_json::json;

/// A file system of one page, which is full.
struct FullDisk(PathBuf);

impl FullDisk {
    fn mount(path: PathBuf) -> Self {
        fs::create_dir_all(&path).unwrap();
        Run::new("mount")
            .args("-t tmpfs -o size=4k,mode=0700 full")
            .arg(&path)
            .ok();
        fs::write(path.join("filler"), [0; 4096]).unwrap();
        Self(path)
    }

    fn free(&self) {
        Run::new("mount")
            .args("-o remount,size=4m")
            .arg(&self.0)
            .ok();
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        Run::new("umount").arg("--lazy").arg(&self.0).finish();
    }
}

#[test]
fn a_full_disk_means_no_login() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    let disk = FullDisk::mount(rig.path("state"));
    rig.start_daemon();
    rig.hsmux("status").finish().says("No space left");
    let mut program = Caller::open(&rig);
    assert_eq!(program.ok("objects", json!({})), json!([]));
    disk.free();
    rig.wait_for_members(2);
    program.ok("sign", json!({}));
    rig.stop();
}
