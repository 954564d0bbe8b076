//! A complete configuration of haproxy, for 2.4 and newer.

use std::fmt::Write;

use super::{Balancer, GatewayHost, PortMapping};

/// A host is down after two failed checks and up again after two answers of 200, each within about a second.
const CHECK: &str = "check inter 1s fastinter 250ms downinter 1s fall 2 rise 2";

/// Time after which a host that takes nothing counts as gone. The kernel also counts a closed window, which a gateway
/// has while its backend does not take an upload. So the time is not shorter than `backend_timeout`.
const SILENCE: &str = "tcp-ut 30s";

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
    # Whoever is gone without a word is noticed: a client after two minutes, a host after half a minute.
    option clitcpka
    clitcpka-idle 1m
    clitcpka-intvl 15s
    clitcpka-cnt 4
    option srvtcpka
    srvtcpka-idle 10s
    srvtcpka-intvl 5s
    srvtcpka-cnt 4
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
    for mapping in balancer.mappings() {
        pass(&mut text, balancer, &mapping, header).expect("a string");
    }
    text
}

fn pass(
    text: &mut String,
    balancer: &Balancer,
    mapping: &PortMapping<'_>,
    header: &str,
) -> std::fmt::Result {
    let PortMapping { suffix, listen, .. } = mapping;
    let address = listen.address.as_deref().unwrap_or("");
    writeln!(text, "\nfrontend clients{suffix}")?;
    writeln!(text, "    bind {address}:{}", listen.port)?;
    writeln!(text, "    default_backend gateways{suffix}")?;
    writeln!(text, "\nbackend gateways{suffix}")?;
    writeln!(text, "    balance leastconn")?;
    // 503: the gateway cannot sign, or it ends. It gets no new connections, and keeps those that it has.
    writeln!(text, "    option httpchk GET /health")?;
    writeln!(text, "    http-check expect status 200")?;
    writeln!(text, "    default-server {CHECK} {SILENCE}{header}")?;
    for server in &balancer.hosts {
        let GatewayHost {
            name,
            address,
            health,
            ..
        } = server;
        if let Some(port) = (mapping.port)(server) {
            writeln!(text, "    server {name} {address}:{port} port {health}")?;
        }
    }
    Ok(())
}
