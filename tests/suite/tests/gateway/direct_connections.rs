//! Signatures that workers of fast tokens make for the gateway without the daemon in between.

use std::fs;

use hsmux_suite::{PATIENCE, Rig, until};
use rustix::process::{Pid, Signal, kill_process};
use rustls::version::TLS13;

use crate::abandoned_handshakes::hello;
use crate::bad_clients::{client, with};
use crate::rig::{FOLDER, Gateway};

fn signal(process: u32, signal: Signal) {
    let process = Pid::from_raw(process.cast_signed()).expect("a process");
    kill_process(process, signal).expect("it is there");
}

/// So many signatures that the gateway asks for direct connections.
fn sign_often(gateway: &Gateway) {
    let hello = hello(&TLS13);
    let total = || gateway.metric("hsmux_gateway_signatures_total");
    let before = total();
    let clients: Vec<_> = (0..200).map(|_| client(gateway, &hello)).collect();
    until("each client has its signature", PATIENCE, || {
        (total() >= before + 200).then_some(())
    });
    drop(clients);
}

/// True if a new client gets a page although the daemon runs nothing.
fn serves_without_daemon(gateway: &Gateway) -> bool {
    let daemon = gateway.rig.daemon.as_ref().expect("the daemon").id();
    signal(daemon, Signal::STOP);
    let page = gateway.curl("a.test", "/page.txt", "");
    signal(daemon, Signal::CONT);
    page.all().contains("a page")
}

fn wait_for_direct_connections(gateway: &Gateway) {
    until(
        "a worker signs while the daemon is stopped",
        PATIENCE,
        || {
            sign_often(gateway);
            serves_without_daemon(gateway).then_some(())
        },
    );
}

/// Makes this certificate the one of the site.
fn use_certificate(rig: &Rig, certificate: &str) {
    fs::copy(rig.path(certificate), rig.path("new.pem")).expect("a copy");
    fs::rename(rig.path("new.pem"), rig.path("web.pem")).expect("a certificate");
}

/// Connections to the workers.
fn sockets_of_workers(gateway: &Gateway) -> usize {
    let workers = gateway.rig.workers();
    let files = workers.iter().flat_map(|worker| {
        let files = fs::read_dir(format!("/proc/{worker}/fd")).expect("its files");
        files.filter_map(|file| fs::read_link(file.ok()?.path()).ok())
    });
    let is_socket = |file: &std::path::PathBuf| file.to_string_lossy().starts_with("socket:");
    files.filter(is_socket).count()
}

#[test]
fn a_worker_signs_for_the_gateway_while_the_daemon_is_stopped() {
    let gateway = with("sign_timeout = \"2s\"");
    wait_for_direct_connections(&gateway);
    // A reload ends all direct connections. The gateway asks for others.
    gateway.rig.hsmux("reload").ok();
    gateway.curl("a.test", "/page.txt", "").says("a page");
    wait_for_direct_connections(&gateway);
}

#[test]
fn no_handshake_fails_when_workers_with_direct_connections_die() {
    let gateway = with("sign_timeout = \"20s\"");
    wait_for_direct_connections(&gateway);
    let failed = || gateway.metric("hsmux_gateway_signatures_failed_total");
    let before = failed();
    for worker in gateway.rig.workers() {
        signal(worker, Signal::KILL);
        gateway.curl("a.test", "/page.txt", "").says("a page");
        sign_often(&gateway);
    }
    assert_eq!(failed(), before);
}

#[test]
fn without_direct_connections_the_daemon_carries_each_signature() {
    let mut gateway = with("sign_timeout = \"2s\"");
    wait_for_direct_connections(&gateway);
    gateway.rig.config.daemon.push_str("\ndirect = false");
    gateway.rig.write_config();
    gateway.rig.hsmux("reload").ok();
    for _ in 0..3 {
        sign_often(&gateway);
        assert!(!serves_without_daemon(&gateway));
    }
    gateway.curl("a.test", "/page.txt", "").says("a page");
}

#[test]
fn direct_connections_end_when_no_site_uses_their_key() {
    let rig = Gateway::prepare();
    use_certificate(&rig, "ec.pem");
    let site = format!("[[site]]\ncertificates = [\"web.pem\"]\n{FOLDER}");
    let gateway = Gateway::start(rig, "", &site);
    let before = sockets_of_workers(&gateway);
    until("there are direct connections", PATIENCE, || {
        sign_often(&gateway);
        (sockets_of_workers(&gateway) > before).then_some(())
    });
    use_certificate(&gateway.rig, "rsa.pem");
    until("they have ended", PATIENCE, || {
        (sockets_of_workers(&gateway) == before).then_some(())
    });
}
