//! Reload, takeover and restart of haproxy in front of two gateways.

use std::mem;
use std::time::{Duration, Instant};

use hsmux_suite::{PATIENCE, until};
use rustix::process::Signal;

use crate::balancer::{CALLERS, Client, Cluster, SOCKET, haproxy, on_port};
use crate::rig::page;

/// If nothing happens for so long after a signal, it was lost.
const UNHEARD: Duration = Duration::from_secs(10);

impl Cluster {
    /// How often haproxy has started.
    fn starts(&self) -> usize {
        self.front.log().matches("Loading success").count()
    }

    /// Waits until it has started more often than that. It handles no signals before its first start.
    fn wait_for_starts(&self, before: usize) {
        until("a process of haproxy", PATIENCE, || {
            (self.starts() > before).then_some(())
        });
    }

    /// Reloads it. It logs its start a moment before it handles signals. A signal in between is lost, because haproxy
    /// is the first process of its namespace.
    fn reload(&self) {
        let before = self.starts();
        let mut told: Option<Instant> = None;
        until("a new process of haproxy", PATIENCE, || {
            if self.starts() > before {
                return Some(());
            }
            if told.is_none_or(|told| told.elapsed() > UNHEARD) {
                self.front.signal_first(Signal::USR2);
                told = Some(Instant::now());
            }
            None
        });
    }
}

/// The listening sockets pass from one process of haproxy to the next.
#[test]
fn no_request_fails_when_haproxy_is_reloaded() {
    let cluster = Cluster::start();
    let load = cluster.load();
    // It handles signals only after its first start.
    cluster.wait_for_starts(0);
    for _ in 0..3 {
        cluster.reload();
        load.goes_on(20);
    }
    load.none_failed();
}

/// The old process passes its listening sockets to the new one, and ends.
#[test]
fn no_request_fails_when_another_haproxy_takes_over() {
    let mut cluster = Cluster::start();
    cluster.wait_for_starts(0);
    let load = cluster.load();
    load.goes_on(20);
    let rig = &cluster.hosts[0].rig;
    let from = format!("-x {}", rig.path(SOCKET).display());
    let before = cluster.starts();
    let mut old = mem::replace(&mut cluster.front, haproxy(rig, &from));
    cluster.wait_for_starts(before);
    old.signal_first(Signal::USR1);
    old.wait();
    load.goes_on(20);
    load.none_failed();
    let log = cluster.front.log();
    assert!(!log.contains("Failed to get"), "{log}");
}

/// Exit codes of curl for a refused connection, and for one that ends in the handshake.
const REFUSED: Option<i32> = Some(7);
const CUT_OFF: Option<i32> = Some(35);

/// Between the two processes nobody listens. New connections are refused then, and the load counts them as failures.
#[test]
fn accepted_connections_survive_a_restart_of_haproxy() {
    let mut cluster = Cluster::start();
    cluster.wait_for_starts(0);
    // While they are open, no other process gets the port.
    let mut clients = [Client::connect(cluster.port), Client::connect(cluster.port)];
    clients.iter_mut().for_each(Client::ask);
    let load = cluster.load();
    load.goes_on(20);
    cluster.front.signal_first(Signal::USR1);
    until("nobody listens", PATIENCE, || {
        (page(cluster.port).finish().code == REFUSED).then_some(())
    });
    load.goes_on(2 * CALLERS as u64);
    clients.iter_mut().for_each(Client::ask);
    let new = on_port(cluster.port, &cluster.hosts);
    let mut old = mem::replace(&mut cluster.front, new);
    until("the new process serves", PATIENCE, || {
        (page(cluster.port).finish().code == Some(0)).then_some(())
    });
    let failed = load.stop();
    let load = cluster.load();
    load.goes_on(20);
    clients.iter_mut().for_each(Client::ask);
    load.none_failed();
    drop(clients);
    old.wait();

    let (refused, others): (Vec<_>, Vec<_>) =
        failed.into_iter().partition(|run| run.code == REFUSED);
    assert!(refused.len() >= CALLERS, "{} refused", refused.len());
    // Connections that the kernel had taken and haproxy had not accepted when the socket was closed.
    let early = others.iter().all(|run| run.code == CUT_OFF);
    assert!(early && others.len() <= CALLERS, "{others:#?}");
}
