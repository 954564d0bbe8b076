//! haproxy in front of two gateways, as `hsmux haproxy config` configures it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use hsmux_suite::{BackgroundLoad, PATIENCE, Process, Rig, Run, Setup, on_a_free_port, until};

use crate::rig::{BOTH, FOLDER, Gateway, page};

/// Two hosts, and a balancer in front of them.
pub struct Cluster {
    pub front: Process,
    pub port: u16,
    pub hosts: [Gateway; 2],
}

/// Clients at once. Each has at most one request under way.
pub const CALLERS: usize = 4;

impl Cluster {
    pub fn start() -> Self {
        Self::behind("haproxy", on_port)
    }

    /// Two new hosts behind this balancer.
    pub fn behind(name: &str, on_port: fn(u16, &[Gateway; 2]) -> Process) -> Self {
        let host = || {
            let site = format!("[[site]]\n{BOTH}\n{FOLDER}");
            Gateway::start(Gateway::prepare(), "proxy_protocol = true", &site)
        };
        Self::before([host(), host()], name, on_port)
    }

    /// These hosts behind this balancer.
    pub fn before(
        hosts: [Gateway; 2],
        name: &str,
        on_port: fn(u16, &[Gateway; 2]) -> Process,
    ) -> Self {
        let (front, port) = on_a_free_port(
            name,
            |port| on_port(port, &hosts),
            |port| page(port).finish().code == Some(0),
        );
        Self { front, port, hosts }
    }

    pub fn load(&self) -> BackgroundLoad {
        let port = self.port;
        BackgroundLoad::start(CALLERS, move || page(port))
    }

    fn handshakes(&self, host: usize) -> u64 {
        self.hosts[host].metric("hsmux_gateway_handshakes_total")
    }

    /// Waits until clients have come to this host.
    pub fn serves(&self, host: usize) {
        let before = self.handshakes(host);
        until("the host has clients", PATIENCE, || {
            (self.handshakes(host) > before).then_some(())
        });
    }
}

/// `hsmux haproxy config` for both hosts and a port to listen on, in the folder of the first.
pub fn config(port: u16, hosts: &[Gateway; 2], more: &str) -> Run {
    let (one, other) = (hosts[0].host(), hosts[1].host());
    hosts[0].rig.hsmux(&format!(
        "haproxy config {one} {other} --listen 127.0.0.1:{port} {more}"
    ))
}

/// haproxy's own socket, in the rig's folder.
pub const SOCKET: &str = "haproxy.sock";

pub fn on_port(port: u16, hosts: &[Gateway; 2]) -> Process {
    written_for(port, hosts);
    haproxy(&hosts[0].rig, "")
}

/// As [`on_port`], but logs `client PORT had SERVER` for each connection that has ended.
pub fn logging(port: u16, hosts: &[Gateway; 2]) -> Process {
    written_for(port, hosts);
    let file = hosts[0].rig.path("haproxy.cfg");
    let text = fs::read_to_string(&file).expect("a configuration");
    let logs = text.replace("daemon notice", "daemon info").replace(
        "    log global\n",
        "    log global\n    log-format \"client %cp had %s\"\n",
    );
    assert_eq!(logs.matches("info").count(), 1, "{text}");
    fs::write(&file, logs).expect("a configuration");
    haproxy(&hosts[0].rig, "")
}

fn written_for(port: u16, hosts: &[Gateway; 2]) {
    config(port, hosts, "--out haproxy.cfg --socket")
        .arg(hosts[0].rig.path(SOCKET))
        .ok();
}

/// Starts haproxy with the configuration in the rig's folder.
pub fn haproxy(rig: &Rig, more: &str) -> Process {
    let run = rig.family(&["haproxy", "-W", "-db", "-f", "haproxy.cfg"]);
    Process::start("haproxy", &rig.path(""), run.args(more))
}

#[test]
fn a_host_that_is_killed_is_left_out() {
    let mut cluster = Cluster::start();
    cluster.hosts[0].rig.kill_to_the_last();
    // A refused connection goes to the other host, even before haproxy knows that the first one is down.
    page(cluster.port).ok();
    cluster.front.wait_for("Server gateways/host1 is DOWN");
    let load = cluster.load();
    load.goes_on(40);
    load.none_failed();
}

#[test]
fn a_host_that_cannot_sign_keeps_the_clients_that_it_has() {
    let mut cluster = Cluster::start();
    let mut clients = [Client::connect(cluster.port), Client::connect(cluster.port)];
    clients.iter_mut().for_each(Client::ask);
    for token in ["hsm1", "hsm2"] {
        cluster.hosts[0]
            .rig
            .hsmux(&format!("token park {token} --force"))
            .ok();
    }
    cluster.front.wait_for("Server gateways/host1 is DOWN");
    let (here, there) = (cluster.handshakes(0), cluster.handshakes(1));
    for _ in 0..10 {
        page(cluster.port).ok();
    }
    assert_eq!(
        cluster.handshakes(0),
        here,
        "new clients of a host that cannot sign"
    );
    assert_eq!(cluster.handshakes(1), there + 10);
    clients.iter_mut().for_each(Client::ask);
    for token in ["hsm1", "hsm2"] {
        cluster.hosts[0]
            .rig
            .hsmux(&format!("token resume {token}"))
            .ok();
    }
    let load = cluster.load();
    cluster.serves(0);
    load.none_failed();
}

/// A client whose connection stays open.
pub struct Client {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    pub fn connect(port: u16) -> Self {
        let mut process = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect"])
            .arg(format!("127.0.0.1:{port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl");
        Self {
            input: process.stdin.take().expect("its input"),
            output: BufReader::new(process.stdout.take().expect("its output")),
            process,
        }
    }

    pub fn ask(&mut self) {
        assert_eq!(self.ask_for("a.test"), "a page\n");
    }

    /// Requests the page of a host, which has one line.
    pub fn ask_for(&mut self, host: &str) -> String {
        let request = format!("GET /page.txt HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.input.write_all(request.as_bytes()).expect("ask");
        while self.line() != "\r\n" {}
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).expect("an answer");
        assert!(read > 0, "the connection has ended");
        line
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_configuration_is_checked_before_it_is_written() {
    let rig = Rig::prepare(Setup::Daemon, 0);
    fs::remove_file(rig.path("hsmux.toml")).expect("no configuration");
    let config = |line: &str| {
        rig.hsmux(&format!(
            "haproxy config {line} --port 443 --health-port 9443"
        ))
    };
    config("10.0.0.1 [2001:db8::1]:8443/9444 --listen [::1]:443 --send-proxy")
        .ok()
        .says("server host2 [2001:db8::1]:8443 port 9444")
        .says("send-proxy-v2")
        .never_says("not installed");
    config("10.0.0.1 --nginx --listen 127.0.0.1:8443")
        .ok()
        .says("server 10.0.0.1:443")
        .says("does not ask for /health")
        .never_says("not installed");
    let refused = config("nobody.invalid --out never.cfg")
        .dir(&rig.path(""))
        .fails();
    refused.says("haproxy refuses").says("nobody.invalid");
    assert!(!rig.path("never.cfg").exists());
    // The path is absolute, wherever haproxy is started.
    config("10.0.0.1 --socket front.sock")
        .dir(&rig.path(""))
        .ok()
        .says(&format!("socket {} mode", rig.path("front.sock").display()));
    // haproxy is found although PATH lacks its folder, as that of users does.
    let report = config("10.0.0.1 --json").env("PATH", "").ok().out;
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert!(
        report["configuration"]
            .as_str()
            .is_some_and(|text| text.contains("10.0.0.1:443"))
    );
    rig.hsmux("haproxy config 10.0.0.1").fails().says("--port");
}
