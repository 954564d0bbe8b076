//! The gateway's process is replaced or killed, and started again: its sockets outlive it.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

use hsmux_suite::{PATIENCE, Program, Rig, built, copy_program, running, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::backends::Port;
use crate::client_load::ClientLoad;
use crate::rig::{BOTH, FOLDER, Gateway, configure, page};

/// Clients that connect for each request, and clients that keep their connection.
const CLIENTS: [usize; 2] = [6, 2];

/// The site of all gateways here.
fn site() -> String {
    format!("[[site]]\n{BOTH}\n{FOLDER}")
}

fn load(gateway: &Gateway) -> ClientLoad {
    let [once, kept] = CLIENTS;
    ClientLoad::start(gateway.port(), once, kept)
}

/// `hsmux restart gateway`; answers the old process.
fn restart(gateway: &Gateway) -> u32 {
    let old = gateway.process();
    let restarted = gateway.rig.hsmux("restart gateway").ok();
    restarted.says(&format!("it was process {old}"));
    assert_ne!(gateway.process(), old);
    old
}

fn service(gateway: &Gateway) -> Value {
    let services = &gateway.rig.status()["services"];
    let mut services = services.as_array().expect("services").iter();
    let gateway = services.find(|service| service["name"] == "gateway");
    gateway.expect("the gateway").clone()
}

fn ended(process: u32) {
    until("the old process ends", PATIENCE, || {
        (!running(process)).then_some(())
    });
}

#[test]
fn a_restart_loses_no_connection_and_no_request() {
    let gateway = Gateway::with_folder();
    let load = load(&gateway);
    for _ in 0..3 {
        load.goes_on(50);
        let old = restart(&gateway);
        while running(old) {
            let health = gateway.health();
            assert!(health.contains(" 200 "), "{health}");
        }
        load.goes_on(50);
    }
    load.none_failed();
    let service = service(&gateway);
    assert_eq!(service["state"], "serving", "{service}");
    assert_eq!(service["restarts"], 0, "{service}");
}

#[test]
fn a_killed_gateway_refuses_no_connection() {
    let gateway = Gateway::with_folder();
    for restarts in 1..=2 {
        let load = load(&gateway);
        load.goes_on(50);
        let process = i32::try_from(gateway.process()).expect("a process id");
        kill_process(Pid::from_raw(process).expect("a process"), Signal::KILL).expect("a process");
        let killed = Instant::now();
        until("another process serves", PATIENCE, || {
            let service = service(&gateway);
            (service["state"] == "serving" && service["restarts"] == restarts).then_some(())
        });
        load.goes_on(50);
        let failed = load.stop();
        assert!(failed.len() <= CLIENTS.iter().sum(), "{failed:#?}");
        for failure in failed {
            assert!(failure.port.is_some(), "refused: {failure:?}");
            assert!(failure.began < killed, "{failure:?}");
        }
    }
}

#[test]
fn a_gateway_that_cannot_start_leaves_its_clients_to_the_old_one() {
    let gateway = Gateway::with_folder();
    let old = gateway.process();
    let load = load(&gateway);
    let certificate = gateway.rig.path("rsa.pem");
    let aside = gateway.rig.path("aside.pem");
    fs::rename(&certificate, &aside).expect("a certificate");
    let failed = gateway.rig.hsmux("restart gateway").fails();
    failed.says("rsa.pem");
    assert_eq!(failed.code, Some(1), "{failed}");
    assert_eq!(gateway.process(), old);
    load.goes_on(50);
    fs::rename(&aside, &certificate).expect("a certificate");
    ended(restart(&gateway));
    load.none_failed();
    let other = gateway.rig.hsmux("restart broker").fails();
    other.says("the daemon has no broker");
}

/// One leaves its clients after a hand-over, the other because the daemon stops.
#[test]
fn a_gateway_that_leaves_its_clients_ends_with_the_daemon() {
    let mut rig = Gateway::prepare();
    configure(&mut rig, "leave_time = \"1h\"", &site());
    let mut gateway = Gateway::start_by(rig, Rig::start);
    let old = restart(&gateway);
    let daemon = gateway.rig.daemon.as_ref().expect("a daemon");
    daemon.signal(Signal::TERM);
    until("the end is announced", PATIENCE, || {
        gateway.health().contains(" 503 ").then_some(())
    });
    assert!(running(old));
    gateway.rig.kill_to_the_last();
}

/// Puts another file in the place of a program, as an installation does.
fn install(from: &Path, to: &Path) {
    let new = to.with_extension("new");
    copy_program(from, &new);
    fs::rename(&new, to).expect("install a program");
}

#[test]
fn a_restart_starts_the_program_that_is_installed_by_then() {
    let mut rig = Gateway::prepare();
    let program = rig.path("bin/hsmux");
    fs::create_dir(rig.path("bin")).expect("a folder");
    install(&built(Program::Hsmux), &program);
    configure(&mut rig, "", &site());
    let gateway = Gateway::start_by(rig, |rig| {
        rig.write_config();
        let run = rig.run(rig.path("bin/hsmux")).args("serve");
        rig.start_by(run);
        rig.wait_for_members(2);
    });
    let load = load(&gateway);
    let old = gateway.process();
    install(Path::new("/bin/false"), &program);
    gateway
        .rig
        .hsmux("restart gateway")
        .fails()
        .says("exit status: 1");
    assert_eq!(gateway.process(), old);
    install(&built(Program::Hsmux), &program);
    ended(restart(&gateway));
    let runs = |process: u32| fs::read_link(format!("/proc/{process}/exe")).expect("a program");
    assert_eq!(runs(gateway.process()), program);
    let daemon = gateway.rig.daemon.as_ref().expect("a daemon").id();
    assert_ne!(runs(daemon), program);
    load.none_failed();
}

#[test]
fn a_restart_applies_other_addresses_and_closes_those_that_are_gone() {
    let [kept, gone, new] = [Port::taken(), Port::taken(), Port::taken()];
    let lines = |addresses: [&Port; 2]| {
        let [first, second] = addresses.map(|port| &port.address);
        format!(
            "\n[gateway]\nlisten = [{first:?}, {second:?}]\nmetrics = \"127.0.0.1:0\"\n\
             leave_time = \"0s\"\n{}\n",
            site()
        )
    };
    let mut rig = Gateway::prepare();
    rig.config.module = lines([&kept, &gone]);
    let mut gateway = Gateway::start_by(rig, Rig::start);
    let number = |port: &Port| {
        let number = port.address.rsplit_once(':').expect("a port").1;
        number.parse().expect("a number")
    };
    for port in [&kept, &gone] {
        page(number(port)).ok().says("a page");
    }
    gateway.rig.config.module = lines([&kept, &new]);
    gateway.rig.write_config();
    let applies = "[gateway] changed: hsmux restart gateway applies it";
    gateway.rig.hsmux("reload").ok().says(applies);
    page(number(&gone)).ok();
    let load = ClientLoad::start(number(&kept), 2, 0);
    load.goes_on(10);
    ended(restart(&gateway));
    load.goes_on(10);
    load.none_failed();
    page(number(&new)).ok().says("a page");
    let refused = TcpStream::connect(&*gone.address).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    gateway.rig.hsmux("reload").ok().says("nothing has changed");
    gateway.rig.stop();
    for port in [&kept, &new] {
        let refused = TcpStream::connect(&*port.address).expect_err("nobody listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}
