//! haproxy with a configuration of an administrator's own in front of two gateways, as docs/gateway.md has it.

use std::fs;

use hsmux_suite::{Process, source};

use crate::balancer::haproxy;
use crate::restarts::stop_and_start;
use crate::rig::Gateway;

/// The `haproxy` block of the page: lines of a backend.
fn of_the_page() -> String {
    let page = fs::read_to_string(source().join("docs/gateway.md")).unwrap();
    let (_, block) = page.split_once("```haproxy\n").expect("the block");
    let (block, _) = block.split_once("```").expect("its end");
    let lines = block.lines().filter(|line| line.starts_with("    "));
    lines.map(|line| line.to_owned() + "\n").collect()
}

/// haproxy with these lines for both hosts, which are checked; all else is haproxy's default.
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

#[test]
fn no_request_is_lost_with_the_lines_of_the_page() {
    stop_and_start("", |port, hosts| {
        written_by_hand(port, hosts, &of_the_page())
    });
}

/// It notices the end after six seconds at most.
#[test]
fn no_request_is_lost_with_haproxys_defaults_and_a_longer_leave_time() {
    let page = fs::read_to_string(source().join("docs/gateway.md")).unwrap();
    let line = "leave_time = \"8s\"";
    assert!(page.contains(line), "the page does not say it");
    stop_and_start(line, |port, hosts| {
        written_by_hand(port, hosts, "    option httpchk GET /health\n")
    });
}
