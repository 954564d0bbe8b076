//! A daemon and commands that run as a user without rights.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use hsmux_suite::{
    PATIENCE, Process, Program, Rig, Run, SOFTHSM, Setup, SoftHsm, built, copy_program, until,
};

/// Puts a rig and a copy of `hsmux` that this user may read into the hands of `nobody`. The configuration stays root's,
/// as in /etc: root's commands believe no other.
fn hand_over(rig: &Rig) {
    let copy = rig.path("hsmux");
    copy_program(&built(Program::Hsmux), &copy);
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    rig.run("chown")
        .args("-R nobody:nogroup")
        .arg(rig.path(""))
        .ok();
    let config = rig.run("chown").arg("root").arg(rig.path(""));
    config.arg(rig.path("hsmux.toml")).ok();
    fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o1777)).unwrap();
}

/// A program that runs as `nobody`.
fn as_nobody(rig: &Rig) -> Run {
    rig.run("setpriv")
        .args("--reuid nobody --regid nogroup --clear-groups")
}

/// The user whom /proc gives the files of a process to: root, when the process may not be dumped
/// or traced (proc(5), PR_SET_DUMPABLE in prctl(2)); else its own user.
fn keeper(pid: u32) -> u32 {
    fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid()
}

#[test]
fn processes_that_hold_pins_leave_no_core_and_let_nobody_look() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    hand_over(&rig);
    let folder = rig.path("");
    let mut sleep = Process::start("sleep", &folder, as_nobody(&rig).args("sleep 600"));
    let nobody = rig.path("hsmux").metadata().unwrap().uid();
    until("sleep runs", PATIENCE, || {
        (keeper(sleep.id()) == nobody).then_some(())
    });
    sleep.kill();

    rig.start_by(as_nobody(&rig).arg(rig.path("hsmux")).arg("serve"));
    rig.wait_for_members(2);
    let mut pids = rig.workers();
    assert_eq!(pids.len(), 2);
    pids.push(rig.daemon.as_ref().unwrap().id());
    for pid in pids {
        let proc = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        let status = proc("status");
        let uid = format!("Uid:\t{nobody}\t{nobody}");
        assert!(status.contains(&uid), "{status}");
        assert_eq!(keeper(pid), 0, "{status}");
        let limits = proc("limits");
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let words: Vec<_> = core.expect("a limit").split_whitespace().collect();
        assert_eq!(words[4..6], ["0", "0"], "{limits}");
    }
    rig.stop();
}

/// A line of /proc/PID/status in KiB (proc(5)).
fn memory(pid: u32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|told| told.strip_prefix(line));
    let value = value.and_then(|told| told.trim().strip_suffix(" kB"));
    value.expect(line).parse().unwrap()
}

#[test]
fn workers_lock_their_memory_where_they_may() {
    for locks in [true, false] {
        let mut rig = Rig::prepare(Setup::Daemon, 1);
        let serve = if locks {
            rig.hsmux("serve --log debug")
        } else {
            hand_over(&rig);
            let limit = rig.run("prlimit").args("--memlock=8388608:8388608");
            limit
                .args("setpriv --reuid nobody --regid nogroup --clear-groups")
                .arg(rig.path("hsmux"))
                .args("serve --log debug")
        };
        rig.start_by(serve);
        rig.wait_for_members(1);
        let workers = rig.workers();
        let [worker] = workers[..] else {
            panic!("{workers:?}");
        };
        assert_eq!(memory(worker, "VmLck:") > 0, locks);
        // Address space that is never used takes no memory though it is locked.
        assert!(memory(worker, "VmRSS:") < 64 << 10);
        let log = rig.daemon.as_ref().unwrap().log();
        assert_eq!(log.contains("RLIMIT_MEMLOCK is limited"), !locks, "{log}");
        rig.stop();
    }
}

/// Without a configuration PINs are on record in the user's state folder, wherever the command is called.
#[test]
fn commands_without_a_configuration_keep_their_state_in_the_users_folder() {
    let rig = Rig::empty(Setup::Daemon, 0);
    rig.write_pin("new", &SoftHsm::pin("new"));
    rig.write_pin("so", SoftHsm::SO_PIN);
    fs::create_dir(rig.path("elsewhere")).unwrap();
    hand_over(&rig);
    let hsmux = |line: &str| {
        as_nobody(&rig)
            .env("HSMUX_CONFIG", "")
            .env("XDG_CONFIG_HOME", rig.path("config"))
            .env("XDG_STATE_HOME", rig.path("state-of-the-user"))
            .dir(&rig.path("elsewhere"))
            .arg(rig.path("hsmux"))
            .args(line)
    };
    let (pin, so_pin) = (rig.path("new.pin"), rig.path("so.pin"));
    let init = format!(
        "token init --module {SOFTHSM} --label new --pin file:{} --so-pin file:{}",
        pin.display(),
        so_pin.display()
    );
    hsmux(&init).ok().says("new");
    let kept = fs::read_dir(rig.path("state-of-the-user/hsmux/pins")).unwrap();
    assert!(kept.count() > 0, "nothing is on record");
    let left = fs::read_dir(rig.path("elsewhere")).unwrap();
    assert_eq!(left.count(), 0, "something was left where it was called");
}

/// A daemon with a user of its own can read the records of PINs that commands of root have written.
#[test]
fn a_daemon_reads_what_commands_of_root_have_left() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let tokens = rig.stand_in("vendor", &["one"]);
    rig.write_pin("one", "not-the-pin");
    rig.write_config();
    fs::create_dir(rig.path("state")).unwrap();
    hand_over(&rig);
    // Before the daemon's first start: it makes the folder of the records.
    rig.hsmux("pin list").ok();
    rig.start_by(as_nobody(&rig).arg(rig.path("hsmux")).arg("serve"));
    until("the PIN is refused", PATIENCE, || {
        let listed = rig.hsmux("pin list").ok();
        listed.out.contains("refused").then_some(())
    });
    rig.stop();
    // It writes the record anew, which lets the daemon try once more.
    rig.hsmux("pin release one").ok();
    rig.start_by(as_nobody(&rig).arg(rig.path("hsmux")).arg("serve"));
    until("the PIN is shown again", PATIENCE, || {
        (tokens.pins_shown("one").len() == 2).then_some(())
    });
    rig.stop();
}

#[test]
fn a_daemon_that_is_not_roots_gives_no_worker_to_another_user() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.config.members[0].more.push_str("user = \"daemon\"\n");
    rig.write_config();
    hand_over(&rig);
    rig.start_by(as_nobody(&rig).arg(rig.path("hsmux")).arg("serve"));
    until("the member says why", PATIENCE, || {
        let status = rig.hsmux("status").finish();
        let why = "only a daemon that root has started can give workers to a user";
        status.out.contains(why).then_some(())
    });
    rig.stop();
}
