//! A `stream` block for nginx.conf.

use std::fmt::Write;

use super::{Balancer, Server};

pub(super) fn text(balancer: &Balancer) -> String {
    let mut text = String::from(
        "# Written by `hsmux haproxy config --nginx`: for the top level of nginx.conf, beside http { }.\n\
         # Debian has the module in libnginx-mod-stream.\n\
         stream {\n    upstream gateways {\n        least_conn;\n",
    );
    let mut line = |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("a string");
    for Server { address, port, .. } in &balancer.hosts {
        line(format_args!(
            "        server {address}:{port} max_fails=1 fail_timeout=2s;"
        ));
    }
    let address = balancer.listen.address.as_ref();
    let address = address.map_or_else(String::new, |address| format!("{address}:"));
    line(format_args!(
        "    }}\n    server {{\n        listen {address}{};",
        balancer.listen.port
    ));
    line(format_args!("        proxy_pass gateways;"));
    if balancer.send_proxy {
        line(format_args!("        proxy_protocol on;"));
    }
    line(format_args!(
        "        proxy_connect_timeout 2s;\n        proxy_timeout 1h;"
    ));
    line(format_args!(
        "        proxy_socket_keepalive on;\n    }}\n}}"
    ));
    text
}
