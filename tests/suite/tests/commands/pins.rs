//! Where PINs come from: a variable of the environment, a credential of the service manager.

use std::fs;

use hsmux_suite::{Caller, Rig, Setup, SoftHsm};
use serde_json::json;

/// Whether this stands in the environment that a process was started with.
fn was_told(process: u32, text: &str) -> bool {
    let environment = fs::read(format!("/proc/{process}/environ")).expect("an environment");
    String::from_utf8_lossy(&environment).contains(text)
}

#[test]
fn pins_of_the_environment_and_of_credentials_are_the_daemons_alone() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    let [first, second] = ["hsm1", "hsm2"].map(SoftHsm::pin);
    let credentials = rig.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::rename(rig.path("hsm2.pin"), credentials.join("second")).unwrap();
    fs::remove_file(rig.path("hsm1.pin")).unwrap();
    let config = rig
        .config
        .to_string()
        .replace("file = \"hsm1.pin\"", "env = \"FIRST_PIN\"")
        .replace("file = \"hsm2.pin\"", "credential = \"second\"");
    fs::write(rig.path("hsmux.toml"), config).unwrap();
    let serve = rig
        .hsmux("serve")
        .env("FIRST_PIN", &first)
        .env("CREDENTIALS_DIRECTORY", &credentials);
    rig.start_by(serve);
    rig.wait_for_members(2);
    let mut program = Caller::open(&rig);
    for other in ["hsm1", "hsm2"] {
        rig.hsmux(&format!("token park {other} --force")).ok();
        rig.wait_for_members(1);
        program.ok("sign", json!({}));
        rig.hsmux(&format!("token resume {other}")).ok();
        rig.wait_for_members(2);
    }
    let daemon = rig.daemon.as_ref().unwrap().id();
    assert!(was_told(daemon, &first) && was_told(daemon, "CREDENTIALS_DIRECTORY"));
    let workers = rig.workers();
    assert_eq!(workers.len(), 2);
    for worker in workers {
        for text in [&*first, &*second, "FIRST_PIN", "CREDENTIALS_DIRECTORY"] {
            assert!(!was_told(worker, text), "{text}");
        }
    }
}
