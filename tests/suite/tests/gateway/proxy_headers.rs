//! PROXY headers, sent to nginx and haproxy as backends and accepted from proxies.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;

use boring::ssl::{SslConnector, SslMethod, SslVerifyMode};
use hsmux_suite::{PATIENCE, Process, Run, on_a_free_port, until};

use crate::bad_clients;
use crate::rig::{ASK, BOTH, FOLDER, Gateway};
use crate::unused_signatures::from;

/// A server that answers each request with the addresses in the PROXY header.
pub struct Server {
    name: &'static str,
    pub port: u16,
    _process: Process,
}

impl Server {
    /// Starts nginx with the `server` for a port.
    pub fn nginx(folder: &Path, server: impl Fn(u16) -> String) -> Self {
        let run = format!("-p {} -e stderr -c nginx.conf", folder.display());
        Self::start(folder, "nginx", &run, |port| around_nginx(&server(port)))
    }

    /// Starts haproxy with the sections for a port.
    pub fn haproxy(folder: &Path, sections: impl Fn(u16) -> String) -> Self {
        Self::start(folder, "haproxy", "-db -f haproxy.conf", |port| {
            format!("{HAPROXY_DEFAULTS}{}", sections(port))
        })
    }

    /// Starts a program with arguments, and a configuration for a port.
    fn start(folder: &Path, name: &'static str, run: &str, config: impl Fn(u16) -> String) -> Self {
        let start = |port| {
            fs::write(folder.join(format!("{name}.conf")), config(port)).expect("a configuration");
            Process::start(name, folder, Run::new(name).dir(folder).args(run))
        };
        let answers = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
        let (process, port) = on_a_free_port(name, start, answers);
        Self {
            name,
            port,
            _process: process,
        }
    }

    /// The names of its sites, one for each version of the header.
    fn sites(&self) -> [(String, &'static str); 2] {
        ["v1", "v2"].map(|version| (format!("{}-{version}.test", self.name), version))
    }
}

/// A configuration of nginx with this `server`, in the folder of the process. It logs requests to `access.log`.
fn around_nginx(server: &str) -> String {
    format!(
        "daemon off; master_process off; user root; pid nginx.pid; error_log stderr;\n\
         events {{}}\n\
         http {{\n\
         client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp;\n\
         uwsgi_temp_path temp; scgi_temp_path temp; access_log access.log; default_type text/plain;\n\
         {server}\n\
         }}\n"
    )
}

const HAPROXY_DEFAULTS: &str =
    "defaults\n  mode http\n  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n";

fn nginx(port: u16) -> String {
    let [client, server] =
        ["", "server_"].map(|of| format!("$proxy_protocol_{of}addr $proxy_protocol_{of}port"));
    format!(
        "server {{ listen 127.0.0.1:{port} proxy_protocol; return 200 \"from {client} to {server}.\"; }}"
    )
}

fn haproxy(port: u16) -> String {
    format!(
        "frontend told\n  bind 127.0.0.1:{port} accept-proxy\n  http-request return status 200 \
         content-type text/plain lf-string \"from %[src] %[src_port] to %[dst] %[dst_port].\"\n"
    )
}

/// Both servers, in a folder.
fn servers(folder: &Path) -> [Server; 2] {
    [
        Server::nginx(folder, nginx),
        Server::haproxy(folder, haproxy),
    ]
}

/// The sites of all servers.
fn sites(servers: &[Server]) -> String {
    let each = servers.iter().flat_map(|server| {
        let site = |(name, version): (String, &str)| {
            format!(
                "[[site]]\nnames = [\"{name}\"]\n{BOTH}\nsend_proxy = \"{version}\"\n\
                 backend = \"tcp://127.0.0.1:{}\"\n",
                server.port
            )
        };
        server.sites().map(site)
    });
    each.collect()
}

/// The names of all sites.
fn names(servers: &[Server]) -> impl Iterator<Item = String> {
    let sites = servers.iter().flat_map(Server::sites);
    sites.map(|(name, _)| name)
}

#[test]
fn backends_get_both_addresses_of_a_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let servers = servers(folder.path());
    let gateway = Gateway::start(Gateway::prepare(), "", &sites(&servers));
    let port = gateway.port();
    for name in names(&servers) {
        let options = "--interface host!127.0.0.2 --write-out :%{local_port}:";
        let said = gateway.curl(&name, "/", options);
        let own = said.out.rsplit(':').nth(1).expect("the client's port");
        said.says(" 200")
            .says(&format!("from 127.0.0.2 {own} to 127.0.0.1 {port}."));
    }
}

/// A header of version 1 from any other address is refused.
#[test]
fn headers_of_other_proxies_are_refused() {
    let header = b"PROXY TCP4 192.0.2.7 192.0.2.9 4711 443\r\n";
    let site = format!("[[site]]\n{BOTH}\n{FOLDER}");
    let refused =
        |gateway: &Gateway| gateway.metric("hsmux_gateway_refused_total{reason=\"proxy-address\"}");
    let lines = "proxy_protocol = true\nproxy_from = [\"127.0.0.2\"]";
    let gateway = Gateway::start(Gateway::prepare(), lines, &site);
    let named = "--haproxy-protocol --interface host!127.0.0.2";
    gateway.curl("a.test", "/page.txt", named).says("a page");
    assert_eq!(refused(&gateway), 0);
    assert!(bad_clients::rest(bad_clients::client(&gateway, header)).is_empty());
    assert_eq!(refused(&gateway), 1);
}

/// An address of this host that is not on loopback. Nothing is sent.
fn outward() -> [u8; 4] {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let routed = socket.connect("198.51.100.1:9");
    routed.expect("a route to other hosts, for an address that is not on loopback");
    match socket.local_addr().expect("an address") {
        SocketAddr::V4(at) => at.ip().octets(),
        SocketAddr::V6(at) => panic!("{at} is no address of IPv4"),
    }
}

/// By default proxies are trusted on all loopback addresses, and nowhere else.
#[test]
fn by_default_only_loopback_may_send_headers() {
    let site = format!("[[site]]\n{BOTH}\n{FOLDER}");
    // The address in a trusted header counts: it may have one connection.
    let lines = "proxy_protocol = true\nsource_connections = 1";
    let gateway = Gateway::start(Gateway::prepare(), lines, &site);
    let refused = |reason: &str| {
        gateway.metric(&format!(
            "hsmux_gateway_refused_total{{reason=\"{reason}\"}}"
        ))
    };
    let header = |last: u8| format!("PROXY TCP4 203.0.113.{last} 192.0.2.9 4711 443\r\n");
    let connect = |address, last| from(address, &gateway.address, header(last).as_bytes());
    let _held = [[127, 0, 0, 1], [127, 0, 0, 2], [127, 255, 255, 254]]
        .into_iter()
        .enumerate()
        .map(|(at, address)| connect(address, at as u8))
        .collect::<Vec<_>>();
    until("all are believed", PATIENCE, || {
        (gateway.metric("hsmux_gateway_handshakes_in_flight") == 3).then_some(())
    });
    // The limit holds for connections by another proxy as well.
    assert!(bad_clients::rest(connect([127, 0, 0, 3], 0)).is_empty());
    assert_eq!((refused("source"), refused("proxy-address")), (1, 0));
    assert!(bad_clients::rest(connect(outward(), 7)).is_empty());
    assert_eq!((refused("source"), refused("proxy-address")), (1, 1));
}

/// The answer to a client behind a proxy that sends this header.
fn ask_behind(header: &str, gateway: &Gateway, name: &str) -> String {
    let mut stream = TcpStream::connect(&gateway.address).expect("a connection");
    let limit = stream.set_read_timeout(Some(PATIENCE));
    limit.expect("a time limit");
    stream.write_all(header.as_bytes()).expect("a header");
    let mut tls = SslConnector::builder(SslMethod::tls()).expect("TLS");
    tls.set_verify(SslVerifyMode::NONE);
    let tls = tls.build().connect(name, stream);
    let mut tls = tls.expect("a handshake");
    let ask = ASK.replace("a.test", name);
    tls.write_all(ask.as_bytes()).expect("a request");
    let mut answer = Vec::new();
    // The server ends it, with or without close_notify.
    let _ = tls.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Not of the proxy, from which the connection comes.
#[test]
fn backends_get_the_address_of_a_client_behind_a_proxy() {
    let folder = tempfile::tempdir().expect("a folder");
    let servers = servers(folder.path());
    let sites = sites(&servers);
    let gateway = Gateway::start(Gateway::prepare(), "proxy_protocol = true", &sites);
    for name in names(&servers) {
        for (family, client, proxy) in [
            ("TCP4", "192.0.2.7", "192.0.2.9"),
            ("TCP6", "2001:db8::7", "2001:db8::9"),
        ] {
            let header = format!("PROXY {family} {client} {proxy} 4711 443\r\n");
            let said = ask_behind(&header, &gateway, &name);
            assert!(said.contains(&format!("from {client} 4711 to ")), "{said}");
        }
    }
}
