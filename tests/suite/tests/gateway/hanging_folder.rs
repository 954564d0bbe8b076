//! A folder whose file system hangs: only requests for its files wait.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hsmux_suite::Run;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::rig::{BOTH, FOLDER, Gateway};

/// A FUSE mount without a program: each call there hangs until this is dropped.
struct HangingMount {
    folder: PathBuf,
    device: Option<File>,
}

impl HangingMount {
    fn at(folder: &Path) -> Self {
        fs::create_dir(folder).expect("a folder");
        let options = File::options().read(true).write(true).open("/dev/fuse");
        let device = options.expect("/dev/fuse");
        fcntl_setfd(&device, FdFlags::empty()).expect("for mount(8)");
        let number = device.as_raw_fd();
        Run::new("mount")
            .args("-i -t fuse -o")
            .arg(format!(
                "fd={number},rootmode=40000,user_id=0,group_id=0,allow_other"
            ))
            .arg("dead")
            .arg(folder)
            .ok();
        fcntl_setfd(&device, FdFlags::CLOEXEC).expect("for this process alone");
        Self {
            folder: folder.to_owned(),
            device: Some(device),
        }
    }
}

impl Drop for HangingMount {
    fn drop(&mut self) {
        // Closing the device ends the calls that hang.
        self.device = None;
        Run::new("umount").arg("--lazy").arg(&self.folder).finish();
    }
}

#[test]
fn a_hanging_folder_delays_only_its_own_requests() {
    let rig = Gateway::prepare();
    let mount = HangingMount::at(&rig.path("www/dead"));
    let gateway = Gateway::start(rig, "", &format!("[[site]]\n{BOTH}\n{FOLDER}"));
    let get = |path: &str, more: &str| gateway.curl("a.test", path, more);
    get("/page.txt", "").says(" 200").says("a page");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let all = "--http2 --parallel --parallel-max 16 --max-time 60";
            get("/dead/[1-16]", all)
        });
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            get("/page.txt", "--max-time 5").says(" 200").says("a page");
        }
        assert!(!waiting.is_finished(), "nothing hangs there");
        // They end with an error after their time limit.
        let told = waiting.join().expect("curl");
        assert_eq!(told.out.matches(" 500").count(), 16, "{}", told.out);
        get("/page.txt", "").says(" 200");
    });
    drop(mount);
    get("/dead/1", "").says(" 404");
}
