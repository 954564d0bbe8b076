//! What a module can reach from within its worker.

use std::fs;
use std::net::TcpListener;

use hsmux_pool::Connector;
use hsmux_worker::{ProcessConnector, Profile, Sandbox};

use crate::rig::*;

/// What the module could do under a profile, in the order in which it has tried.
fn reached(profile: Profile) -> Vec<bool> {
    let elsewhere = tempfile::tempdir().unwrap();
    let pin = elsewhere.path().join("other.pin");
    fs::write(&pin, "1234").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let standin = StandIn::new("", "");
    fs::create_dir_all(standin.state()).unwrap();
    let own = standin.state().join("own");
    fs::write(&own, "").unwrap();
    let pin = pin.display();
    let tries = [
        format!("write:{}", own.display()),
        "read:/etc/passwd".to_owned(),
        format!("read:{pin}"),
        format!("write:{pin}"),
        format!("connect:{}", listener.local_addr().unwrap()),
        "run:/bin/true".to_owned(),
        format!("device:{}", standin.state().join("device").display()),
    ];
    standin.set(&format!("reach = {tries:?}"), "");
    let sandbox = Sandbox {
        profile,
        folders: vec![standin.state()],
    };
    let program = std::env::current_exe().unwrap();
    let options = options(&standin.module(), "m1", "1234", &standin.state());
    let worker = ProcessConnector::confined(program, options, sandbox)
        .environment(vec![(MARK.into(), "1".into())])
        .connect()
        .unwrap();
    // It serves all the same.
    worker.execute(&sign(&*worker), soon()).unwrap();
    let process = worker.process().unwrap();
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    for thread in threads.flatten() {
        let status = fs::read_to_string(thread.path().join("status")).unwrap();
        let says = |what: &str| status.lines().any(|line| line == what);
        assert_eq!(says("Seccomp:\t2"), profile != Profile::None, "{status}");
    }
    let told = fs::read_to_string(standin.state().join("reached")).unwrap();
    let could = |line: &str| line.ends_with(" yes");
    told.lines().map(could).collect()
}

#[test]
fn a_module_of_a_file_or_a_card_reaches_its_own_alone() {
    for profile in [Profile::File, Profile::Pcsc] {
        let expected = [true, true, false, false, false, false, false];
        assert_eq!(reached(profile), expected, "{profile:?}");
    }
}

#[test]
fn a_module_of_the_network_runs_no_program() {
    assert_eq!(
        reached(Profile::Network),
        [true, true, true, true, true, false, is_root()]
    );
}

#[test]
fn an_unknown_module_reaches_all() {
    assert_eq!(
        reached(Profile::None),
        [true, true, true, true, true, true, is_root()]
    );
}

/// No other user makes devices, whatever the sandbox.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
