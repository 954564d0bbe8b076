//! haproxy with an administrator's own configuration in front of two gateways, as in docs/gateway.md.

use std::fs;

use hsmux_suite::{Process, source};

use crate::balancer::haproxy;
use crate::doc_blocks::block;
use crate::gateway_restarts::{kill_and_start, stop_and_start, stop_for_long};
use crate::rig::Gateway;

/// The `haproxy` block of that page: lines of a backend.
fn of_the_page() -> String {
    let block = block("Behind haproxy", "haproxy");
    let lines = block.lines().filter(|line| line.starts_with("    "));
    lines.map(|line| line.to_owned() + "\n").collect()
}

/// haproxy with these lines, and checks of both hosts. All else is haproxy's default.
fn written_by_hand(port: u16, hosts: &[Gateway; 2], lines: &str) -> Process {
    let server = |number: usize| {
        let host = &hosts[number - 1];
        let health = host.metrics.rsplit_once(':').expect("a port").1;
        let address = &host.address;
        format!("    server host{number} {address} check port {health} send-proxy-v2\n")
    };
    let text = format!(
        "global\n    log stderr format raw daemon notice\n\
         defaults\n    mode tcp\n    log global\n    timeout connect 5s\n    timeout client 1m\n    timeout server 1m\n\
         frontend clients\n    bind 127.0.0.1:{port}\n    default_backend gateways\n\
         backend gateways\n{lines}{}{}",
        server(1),
        server(2)
    );
    let rig = &hosts[0].rig;
    fs::write(rig.path("haproxy.cfg"), text).expect("a configuration");
    haproxy(rig, "")
}

/// haproxy with its defaults and these lines. It checks the port that clients use: `server NAME ADDRESS check`. It logs
/// each connection.
fn with_defaults(port: u16, hosts: &[Gateway; 2], lines: &str) -> Process {
    let [one, other] = hosts.each_ref().map(|host| &host.address);
    let text = format!(
        "global\n    log stderr format raw daemon info\n\
         defaults\n    mode tcp\n    log global\n    log-format \"client %cp had %s\"\n\
         \x20   timeout connect 5s\n    timeout client 1m\n    timeout server 1m\n\
         frontend clients\n    bind 127.0.0.1:{port}\n    default_backend gateways\n\
         backend gateways\n{lines}    server host1 {one} check\n    server host2 {other} check\n"
    );
    let rig = &hosts[0].rig;
    fs::write(rig.path("haproxy.cfg"), text).expect("a configuration");
    haproxy(rig, "")
}

/// The line that the page adds to haproxy's defaults.
const REDISPATCH: &str = "    option redispatch\n";

fn redispatching(port: u16, hosts: &[Gateway; 2]) -> Process {
    with_defaults(port, hosts, REDISPATCH)
}

/// The gateways' default as well.
const NO_HEADER: &str = "proxy_protocol = false";

#[test]
fn no_request_is_lost_with_haproxys_defaults_and_redispatch() {
    let page = fs::read_to_string(source().join("docs/gateway.md")).unwrap();
    let line = format!("`{}`", REDISPATCH.trim());
    assert!(page.contains(&line), "the page does not say it");
    let failed = stop_for_long(NO_HEADER, redispatching);
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn only_requests_under_way_are_lost_with_haproxys_defaults_and_redispatch() {
    kill_and_start(NO_HEADER, redispatching);
}

#[test]
fn no_request_is_lost_with_the_documented_lines() {
    stop_and_start("", |port, hosts| {
        written_by_hand(port, hosts, &of_the_page())
    });
}

/// haproxy notices the end after six seconds at most.
#[test]
fn no_request_is_lost_with_haproxys_defaults_and_a_longer_leave_time() {
    let page = fs::read_to_string(source().join("docs/gateway.md")).unwrap();
    let line = "leave_time = \"8s\"";
    assert!(page.contains(line), "the page does not say it");
    stop_and_start(line, |port, hosts| {
        written_by_hand(port, hosts, "    option httpchk GET /health\n")
    });
}
