//! Gateways behind haproxy are stopped or killed, and started again, one after the other, under load.

use std::net::TcpStream;
use std::time::Instant;

use hsmux_suite::{PATIENCE, Process, Rig, until};

use crate::backends::Port;
use crate::balancer::{Cluster, logging, on_port};
use crate::client_load::{ClientLoad, Failure};
use crate::rig::{BOTH, FOLDER, Gateway};

/// Clients that connect for each request, and clients that keep their connection. Each has one request at a time.
const CLIENTS: [usize; 2] = [6, 2];

/// Two gateways with this line, and a balancer. The gateways' ports are reserved, so that they can come back on them.
fn cluster(line: &str, balancer: fn(u16, &[Gateway; 2]) -> Process) -> (Cluster, [[Port; 2]; 2]) {
    let ports = [(); 2].map(|()| [Port::taken(), Port::taken()]);
    let host = |[tls, health]: &[Port; 2]| {
        let mut rig = Gateway::prepare();
        let header = if line.contains("proxy_protocol") {
            ""
        } else {
            "proxy_protocol = true\n"
        };
        rig.config.module = format!(
            "\n[gateway]\nlisten = [{:?}]\nmetrics = {:?}\n{header}{line}\n[[site]]\n{BOTH}\n{FOLDER}\n",
            tls.address, health.address
        );
        Gateway::start_by(rig, Rig::start)
    };
    let hosts = [host(&ports[0]), host(&ports[1])];
    (Cluster::before(hosts, "haproxy", balancer), ports)
}

impl Cluster {
    fn client_load(&self) -> ClientLoad {
        let [once, kept] = CLIENTS;
        ClientLoad::start(self.port, once, kept)
    }

    /// The hosts of the connections from a client's port, by the log of [`logging`].
    fn hosts_of(&self, port: u16) -> Vec<String> {
        let begin = format!("client {port} had ");
        until("the connection is on the log", PATIENCE, || {
            let log = self.front.log();
            let had = log.lines().filter_map(|line| line.strip_prefix(&begin));
            let had: Vec<_> = had.map(|server| server.trim().to_owned()).collect();
            (!had.is_empty()).then_some(had)
        })
    }

    /// Starts a host again, and waits until haproxy gives it clients.
    fn comes_back(&mut self, host: usize) {
        self.hosts[host].rig.start();
        until("the gateway serves again", PATIENCE, || {
            self.hosts[host].health().contains(" 200 ").then_some(())
        });
        self.serves(host);
    }
}

/// By default, and if haproxy learns of the end only by refused connections.
#[test]
fn no_request_is_lost_while_gateways_are_stopped_and_started() {
    for line in ["", "leave_time = \"0s\""] {
        stop_and_start(line, on_port);
    }
}

/// Stops and starts both gateways under load. No request may fail.
pub fn stop_and_start(line: &str, balancer: fn(u16, &[Gateway; 2]) -> Process) {
    let (mut cluster, _ports) = cluster(line, balancer);
    for host in [0, 1] {
        let load = cluster.client_load();
        cluster.serves(host);
        cluster.hosts[host].rig.stop();
        load.goes_on(100);
        cluster.comes_back(host);
        load.none_failed();
    }
}

/// Stops both gateways in turn until haproxy has noticed, and starts them again. Returns the failures.
pub fn stop_for_long(line: &str, balancer: fn(u16, &[Gateway; 2]) -> Process) -> Vec<Failure> {
    let (mut cluster, _ports) = cluster(line, balancer);
    let mut failed = Vec::new();
    for (host, server) in [(0, "host1"), (1, "host2")] {
        let load = cluster.client_load();
        cluster.serves(host);
        cluster.hosts[host].rig.stop();
        cluster
            .front
            .wait_for(&format!("Server gateways/{server} is DOWN"));
        load.goes_on(100);
        cluster.comes_back(host);
        failed.extend(load.stop());
    }
    failed
}

#[test]
fn only_requests_under_way_are_lost_when_a_gateway_is_killed() {
    kill_and_start("", logging);
}

/// Kills and starts both gateways under load. A request may fail only if it is under way on the killed host. The
/// balancer logs as [`logging`] does.
pub fn kill_and_start(line: &str, balancer: fn(u16, &[Gateway; 2]) -> Process) {
    let (mut cluster, _ports) = cluster(line, balancer);
    for (host, server) in [(0, "host1"), (1, "host2")] {
        let load = cluster.client_load();
        cluster.serves(host);
        cluster.hosts[host].rig.kill_to_the_last();
        let refuses = TcpStream::connect(&cluster.hosts[host].address).is_err();
        assert!(
            refuses,
            "{server}: none of its processes runs, but it accepts"
        );
        let dead = Instant::now();
        load.goes_on(100);
        cluster.comes_back(host);
        let failed = load.stop();
        let all: usize = CLIENTS.iter().sum();
        assert!(failed.len() <= all, "{failed:#?}");
        for Failure { why, port, began } in failed {
            let late = began.saturating_duration_since(dead);
            assert!(
                began < dead,
                "{server} was dead {late:?} before it began: {why}"
            );
            let had = cluster.hosts_of(port.expect("haproxy takes every connection"));
            assert!(had.iter().any(|had| had == server), "on {had:?}: {why}");
        }
    }
}
