//! Workers in the sandboxes that they have without a setting.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use hsmux_suite::{MemberConfig, PATIENCE, Rig, Setup, until};

#[test]
fn softhsm_serves_from_within_its_sandbox() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.config.members[1] = MemberConfig::softhsm("hsm2").with("sandbox = \"none\"");
    rig.start();
    rig.hsmux("key verify").ok();
    let workers = rig.workers();
    assert_eq!(workers.len(), 2);
    for (pid, seccomp) in workers.into_iter().zip(["Seccomp:\t2", "Seccomp:\t0"]) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for line in ["NoNewPrivs:\t1", seccomp] {
            assert!(status.lines().any(|told| told == line), "{line}: {status}");
        }
    }
    let doctor = rig.hsmux("doctor").finish();
    doctor.says("each module has a profile: hsm1 (file); hsm2 (none)");
    // Starts take turns: the lock is where the sandbox lets both write.
    assert!(rig.path("state/pins/start-libsofthsm2.so.lock").exists());
}

/// The process that changes a PIN loads the module, too.
#[test]
fn a_pin_is_changed_from_within_the_sandbox() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a"]);
    let state = rig.path("vendor.state");
    fs::create_dir_all(&state).unwrap();
    rig.config.members[0]
        .more
        .push_str("sandbox = \"file\"\nfolders = [\"vendor.state\"]\n");
    tokens.set_module("reach = [\"run:/bin/true\", \"read:/etc/passwd\"]");
    rig.start();
    let reached = state.join("reached");
    fs::remove_file(&reached).unwrap();
    rig.hsmux("pin rotate").ok();
    let told = fs::read_to_string(reached).unwrap();
    assert_eq!(told, "run:/bin/true no\nread:/etc/passwd yes\n");
    rig.hsmux("key verify").ok();
}

const NOBODY: u32 = 65534;

/// A stand-in whose worker is given to `nobody`, beside a SoftHSM token whose worker stays root's. It tries to read and
/// write what is not its own.
#[test]
fn a_worker_with_a_user_of_its_own_reaches_nothing_of_the_daemons() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    let mut tokens = rig.stand_in("vendor", &["a"]);
    let state = rig.path("vendor.state");
    fs::create_dir_all(&state).unwrap();
    chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    rig.config.members[1].more.push_str("user = \"nobody\"\n");
    let at = |how: &str, file: &str| format!("{how}:{}", rig.path(file).display());
    let tries = [
        "read:/etc/passwd".to_owned(),
        at("read", "state/pins/key"),
        at("read", "hsm1.pin"),
        at("write", "hsmux.toml"),
    ];
    tokens.set_module(&format!("reach = {tries:?}"));
    rig.start();
    let workers = rig.workers();
    let [daemons, nobodys] = workers[..] else {
        panic!("{workers:?}");
    };
    for (pid, user) in [(daemons, 0), (nobodys, NOBODY)] {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let uid = format!("Uid:\t{user}\t{user}\t{user}\t{user}");
        assert!(status.lines().any(|line| line == uid), "{status}");
        let powerless = status.contains("CapPrm:\t0000000000000000\n");
        assert_eq!(powerless, user != 0, "{status}");
        // Nobody may look into it, its own user neither.
        let environment = fs::metadata(format!("/proc/{pid}/environ")).unwrap();
        assert_eq!(environment.uid(), 0);
    }
    let told = fs::read_to_string(state.join("reached")).unwrap();
    let could: Vec<_> = told.lines().map(|line| line.ends_with(" yes")).collect();
    assert_eq!(could, [true, false, false, false], "{told}");
    let doctor = rig.hsmux("doctor").finish();
    doctor.says("hsm1 (file); a (none, user nobody)");
}

/// Its records of PINs are its own, and the daemon reads and releases them.
#[test]
fn a_refused_pin_of_a_worker_with_a_user_of_its_own_is_tried_once_and_released() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let tokens = rig.stand_in("vendor", &["a"]);
    let state = rig.path("vendor.state");
    fs::create_dir_all(&state).unwrap();
    chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    rig.config.members[0].more.push_str("user = \"nobody\"\n");
    rig.write_pin("a", "not-the-pin");
    for _ in 0..2 {
        rig.start_daemon();
        until("the PIN is refused", PATIENCE, || {
            (rig.members_in("parked") == ["a"]).then_some(())
        });
        rig.stop();
    }
    assert_eq!(tokens.pins_shown("a").len(), 1);
    let records = rig.path("state/users/nobody/pins");
    assert_eq!(fs::metadata(records).unwrap().uid(), NOBODY);
    rig.hsmux("pin list").ok().says("refused by the token");
    rig.hsmux("pin release a").ok();
    rig.hsmux("pin list")
        .ok()
        .says("released to be tried once more");
    rig.start_daemon();
    until("the PIN is tried again", PATIENCE, || {
        (tokens.pins_shown("a").len() == 2).then_some(())
    });
    rig.stop();
}
