//! Configurations of haproxy and nginx as a balancer in front of several gateways.
//!
//! TLS passes through the balancer and ends at the gateways. The balancer checks `/health` of each gateway, which means
//! "can sign". A gateway that answers 503 gets no new connections, and keeps those that it has.

mod check;
mod haproxy;
mod host;
mod nginx;

use hsmux_config::GatewaySection;
use hsmux_token::{Error, Kind, Result};

pub use check::Checked;
pub use host::{Host, Listen};

/// The program that the configuration is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// haproxy, in tcp mode.
    Haproxy,
    /// nginx with its `stream` module, which does not check `/health`.
    Nginx,
}

/// Options of the command line.
#[derive(Clone, Debug)]
pub struct BalancerOptions {
    /// The gateways. If empty, the gateway of the configuration.
    pub hosts: Vec<Host>,
    /// The address that clients connect to with TLS.
    pub listen: Listen,
    /// The address for plain HTTP, if the gateways serve that.
    pub http_listen: Listen,
    /// The port of gateways without one of their own.
    pub port: Option<u16>,
    /// The port of `/health`, for gateways without one of their own.
    pub health: Option<u16>,
    /// The port for plain HTTP, for gateways without one of their own.
    pub http_port: Option<u16>,
    /// Whether each connection begins with a PROXY header.
    pub send_proxy: Option<bool>,
    /// haproxy's own socket, by which a new process takes over the listeners. An absolute path without white space.
    pub socket: String,
}

/// A balancer in front of gateways.
#[derive(Clone, Debug)]
pub struct Balancer {
    listen: Listen,
    http_listen: Listen,
    hosts: Vec<GatewayHost>,
    send_proxy: bool,
    socket: String,
}

#[derive(Clone, Debug)]
struct GatewayHost {
    name: String,
    address: String,
    port: u16,
    health: u16,
    /// The port for plain HTTP. Either all hosts have one or none.
    http: Option<u16>,
}

/// A port for clients, and the gateways' port that it leads to.
struct PortMapping<'a> {
    /// Suffix of its names in the configuration.
    suffix: &'static str,
    listen: &'a Listen,
    port: fn(&GatewayHost) -> Option<u16>,
}

impl Balancer {
    /// Takes from `[gateway]` what the options do not give: that section is the same on all hosts.
    ///
    /// # Errors
    /// If neither has something that the balancer needs.
    pub fn new(options: &BalancerOptions, section: Option<&GatewaySection>) -> Result<Self> {
        let listens = section.and_then(|section| section.listen.first());
        let metrics = section.and_then(|section| section.metrics);
        let port = options.port.or(listens.map(std::net::SocketAddr::port));
        let health = options.health.or(metrics.map(|address| address.port()));
        let plain = section.and_then(|section| section.http.first());
        let http = options.http_port.or(plain.map(std::net::SocketAddr::port));
        let any_http = http.is_some() || options.hosts.iter().any(|host| host.http.is_some());
        let mut hosts = options.hosts.clone();
        if hosts.is_empty() {
            let own = listens.filter(|address| !address.ip().is_unspecified());
            let own =
                own.ok_or_else(|| unknown("the hosts: hsmux haproxy config HOST HOST ..."))?;
            hosts.push(Host::of(own.ip()));
        }
        let number = |given: Option<u16>, all: Option<u16>, what: &str| {
            given
                .or(all)
                .filter(|port| *port != 0)
                .ok_or_else(|| unknown(what))
        };
        let server = |(host, position): (&Host, usize)| {
            Ok(GatewayHost {
                name: format!("host{position}"),
                address: host.address.clone(),
                port: number(
                    host.port,
                    port,
                    "the gateways' port: HOST:PORT, --port, or [gateway] listen",
                )?,
                health: number(
                    host.health,
                    health,
                    "the port of /health: HOST:PORT/HEALTH, --health-port, or [gateway] metrics",
                )?,
                http: any_http
                    .then(|| {
                        let what = "the gateways' port for plain HTTP: HOST:PORT/HEALTH/HTTP, \
                             --http-port, or [gateway] http";
                        number(host.http, http, what)
                    })
                    .transpose()?,
            })
        };
        let blank = |c: char| c.is_whitespace() || c.is_control();
        if !options.socket.starts_with('/') || options.socket.contains(blank) {
            return Err(unknown(
                "an absolute path of its socket, without white space",
            ));
        }
        Ok(Self {
            listen: options.listen.clone(),
            http_listen: options.http_listen.clone(),
            socket: options.socket.clone(),
            hosts: hosts.iter().zip(1..).map(server).collect::<Result<_>>()?,
            send_proxy: options
                .send_proxy
                .unwrap_or_else(|| section.is_some_and(|section| section.proxy_protocol)),
        })
    }

    /// TLS, and plain HTTP if the gateways serve it.
    fn mappings(&self) -> impl Iterator<Item = PortMapping<'_>> {
        let tls = PortMapping {
            suffix: "",
            listen: &self.listen,
            port: |server| Some(server.port),
        };
        let plain = PortMapping {
            suffix: "-http",
            listen: &self.http_listen,
            port: |server| server.http,
        };
        let used = |mapping: &PortMapping<'_>| {
            self.hosts.iter().all(|host| (mapping.port)(host).is_some())
        };
        [tls, plain].into_iter().filter(used)
    }

    /// The configuration as a text.
    pub fn configuration(&self, program: Program) -> String {
        match program {
            Program::Haproxy => haproxy::text(self),
            Program::Nginx => nginx::text(self),
        }
    }

    /// Warnings for the administrator.
    pub fn warnings(&self, program: Program, section: Option<&GatewaySection>) -> Vec<String> {
        let mut warnings = Vec::new();
        let metrics = section.and_then(|section| section.metrics);
        if metrics.is_some_and(|address| address.ip().is_loopback()) && self.hosts.len() > 1 {
            warnings.push(
                "[gateway] metrics is on this host's loopback: a balancer elsewhere cannot ask for /health".into(),
            );
        }
        if !self.send_proxy {
            warnings.push(
                "without a PROXY header the gateways take the balancer for the client: [gateway] proxy_protocol = true on each, \
                 and --send-proxy"
                    .into(),
            );
        }
        if program == Program::Nginx {
            warnings.push(
                "nginx does not ask for /health: a host that cannot sign is left out only where it takes no connection"
                    .into(),
            );
        }
        warnings
    }
}

fn unknown(what: &str) -> Error {
    Error::pool(
        Kind::Environment,
        format!("the balancer has to know {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hosts: &[&str], send_proxy: Option<bool>) -> Result<Balancer> {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let options = BalancerOptions {
            hosts,
            listen: ":443".parse().unwrap(),
            http_listen: ":80".parse().unwrap(),
            port: Some(443),
            health: None,
            http_port: None,
            send_proxy,
            socket: "/run/haproxy/admin.sock".into(),
        };
        Balancer::new(&options, None)
    }

    #[test]
    fn a_host_may_have_ports_of_its_own() {
        let text = of(&["10.0.0.1/9443", "[2001:db8::1]:8443/9444"], Some(true))
            .unwrap()
            .configuration(Program::Haproxy);
        assert!(
            text.contains("server host1 10.0.0.1:443 port 9443\n"),
            "{text}"
        );
        assert!(
            text.contains("server host2 [2001:db8::1]:8443 port 9444\n"),
            "{text}"
        );
        assert!(text.contains("send-proxy-v2"), "{text}");
        let text = of(&["a.example/1"], None)
            .unwrap()
            .configuration(Program::Haproxy);
        assert!(!text.contains("send-proxy"), "{text}");
    }

    #[test]
    fn plain_http_has_its_own_port_mapping() {
        let balancer = of(&["10.0.0.1/9443/80", "10.0.0.2:8443/9443/8080"], None).unwrap();
        let text = balancer.configuration(Program::Haproxy);
        assert!(text.contains("bind :80\n"), "{text}");
        assert!(
            text.contains("server host2 10.0.0.2:8080 port 9443\n"),
            "{text}"
        );
        let text = balancer.configuration(Program::Nginx);
        assert!(text.contains("proxy_pass gateways-http;\n"), "{text}");
        let error = of(&["10.0.0.1/9443/80", "10.0.0.2/9443"], None).unwrap_err();
        assert!(error.to_string().contains("--http-port"), "{error}");
        let text = of(&["10.0.0.1/9443"], None)
            .unwrap()
            .configuration(Program::Haproxy);
        assert!(!text.contains(":80\n"), "{text}");
    }

    #[test]
    fn missing_options_are_named() {
        let error = of(&["10.0.0.1"], None).unwrap_err().to_string();
        assert!(error.contains("--health-port"), "{error}");
        let error = of(&[], None).unwrap_err().to_string();
        assert!(error.contains("hsmux haproxy config HOST"), "{error}");
    }
}
