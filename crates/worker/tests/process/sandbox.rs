//! What a module can reach from within its worker.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use hsmux_pool::Connector;
use hsmux_worker::{ProcessConnector, Profile, Sandbox};

use crate::rig::*;

/// What a module can do under a profile: write its own file; read a file of the system; read another member's file;
/// write it; reach the network; run a program; reach a service of the machine; make a device.
fn reached(profile: Profile) -> Vec<bool> {
    let elsewhere = tempfile::tempdir().unwrap();
    let pin = elsewhere.path().join("other.pin");
    fs::write(&pin, "1234").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let service = elsewhere.path().join("service");
    let _service = UnixListener::bind(&service).unwrap();
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
        format!("socket:{}", service.display()),
        format!("device:{}", standin.state().join("device").display()),
    ];
    standin.set(&format!("reach = {tries:?}"), "");
    let sandbox = Sandbox {
        profile,
        folders: vec![standin.state()],
        user: None,
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
    for (profile, socket) in [(Profile::File, false), (Profile::Pcsc, true)] {
        let expected = [true, true, false, false, false, false, socket, false];
        assert_eq!(reached(profile), expected, "{profile:?}");
    }
}

#[test]
fn a_module_of_the_network_runs_no_program() {
    assert_eq!(
        reached(Profile::Network),
        [true, true, true, true, true, false, true, is_root()]
    );
}

#[test]
fn an_unknown_module_reaches_all() {
    assert_eq!(
        reached(Profile::None),
        [true, true, true, true, true, true, true, is_root()]
    );
}

/// No other user makes devices, whatever the sandbox.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
