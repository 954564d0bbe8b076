//! A `stream` block for nginx.conf.

use std::fmt::Write;

use super::{Balancer, PortMapping};

const HEAD: &str = "\
# Written by `hsmux haproxy config --nginx`: for the top level of nginx.conf, beside http { }.
# Debian has the module in libnginx-mod-stream.
stream {
";

pub(super) fn text(balancer: &Balancer) -> String {
    let mut text = HEAD.to_owned();
    for mapping in balancer.mappings() {
        pass(&mut text, balancer, &mapping).expect("a string");
    }
    text + "}\n"
}

fn pass(text: &mut String, balancer: &Balancer, mapping: &PortMapping<'_>) -> std::fmt::Result {
    let PortMapping { suffix, listen, .. } = mapping;
    writeln!(text, "    upstream gateways{suffix} {{")?;
    writeln!(text, "        least_conn;")?;
    for server in &balancer.hosts {
        if let Some(port) = (mapping.port)(server) {
            let address = &server.address;
            writeln!(
                text,
                "        server {address}:{port} max_fails=1 fail_timeout=2s;"
            )?;
        }
    }
    let address = listen.address.as_ref();
    let address = address.map_or_else(String::new, |address| format!("{address}:"));
    writeln!(text, "    }}\n    server {{")?;
    writeln!(text, "        listen {address}{};", listen.port)?;
    writeln!(text, "        proxy_pass gateways{suffix};")?;
    if balancer.send_proxy {
        writeln!(text, "        proxy_protocol on;")?;
    }
    writeln!(text, "        proxy_connect_timeout 2s;")?;
    writeln!(text, "        proxy_timeout 1h;")?;
    writeln!(text, "        proxy_socket_keepalive on;\n    }}")
}
