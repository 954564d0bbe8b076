//! Workers in the sandboxes that they have without a setting.

use std::fs;

use hsmux_suite::{Member, Rig, Setup};

#[test]
fn softhsm_serves_from_within_its_sandbox() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.config.members[1] = Member::softhsm("hsm2").with("sandbox = \"none\"");
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
