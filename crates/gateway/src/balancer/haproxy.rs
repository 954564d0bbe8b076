//! A whole configuration of haproxy, for 2.4 and newer.

use std::fmt::Write;

use super::{Balancer, Server};

/// A host is out after two answers other than 200, or none, and in again after two of 200: about a second.
const CHECK: &str = "check inter 1s fastinter 250ms downinter 1s fall 2 rise 2";

const HEAD: &str = "\
# Written by `hsmux haproxy config`. TLS passes through, and ends at the gateways.
global
    log stderr format raw daemon notice
    # A reload takes the listening sockets over through this: none of them is closed.
    stats socket @SOCKET@ mode 600 level admin expose-fd listeners
    # After a reload the process before goes on with the connections that it has; so long at most.
    hard-stop-after 1h

defaults
    mode tcp
    log global
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    timeout check 2s
    # Whoever is gone without a word is noticed.
    option clitcpka
    option srvtcpka
    # A host that takes no connection: the next one gets it.
    retries 3
    option redispatch 1
";

pub(super) fn text(balancer: &Balancer) -> String {
    let mut text = HEAD.replace("@SOCKET@", &balancer.socket);
    let header = if balancer.send_proxy {
        " send-proxy-v2"
    } else {
        ""
    };
    let mut line = |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("a string");
    let address = balancer.listen.address.as_deref().unwrap_or("");
    line(format_args!(
        "\nfrontend clients\n    bind {address}:{}",
        balancer.listen.port
    ));
    line(format_args!(
        "    default_backend gateways\n\nbackend gateways"
    ));
    line(format_args!("    balance leastconn"));
    // 503: it cannot sign, or it ends. It gets no new connections, and keeps those that it has.
    line(format_args!("    option httpchk GET /health"));
    line(format_args!("    http-check expect status 200"));
    line(format_args!("    default-server {CHECK}{header}"));
    for Server {
        name,
        address,
        port,
        health,
    } in &balancer.hosts
    {
        line(format_args!(
            "    server {name} {address}:{port} port {health}"
        ));
    }
    text
}
