//! `hsmux haproxy`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use hsmux_gateway::balancer::{Balancer, BalancerOptions, Checked, Host, Listen, Program};
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Commands for the load balancer.
#[derive(Subcommand, Debug)]
pub enum Haproxy {
    /// Write a configuration of haproxy in tcp mode, and check it with haproxy
    Config(HaproxyConfig),
}

/// Options of `hsmux haproxy config`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux haproxy config 10.0.0.1 10.0.0.2 10.0.0.3 --port 443 --health-port 9443 --send-proxy\n  \
    hsmux haproxy config host1 host2:8443/9444 --out /etc/haproxy/haproxy.cfg\n  \
    hsmux haproxy config host1 host2 --nginx > stream.conf\n\n\
    If there is a configuration, its [gateway] sets the ports and the PROXY header, the same for all hosts.\n\
    If /health of a host returns 503, the host gets no new connections and keeps its existing ones.")]
pub struct HaproxyConfig {
    /// The gateways, as HOST[:PORT][/HEALTH[/HTTP]], where HEALTH is the port of [gateway] metrics, HTTP that of
    /// [gateway] http [default: this host]
    #[arg(value_name = "HOST")]
    hosts: Vec<Host>,
    /// The address for clients, as [ADDRESS]:PORT
    #[arg(long, default_value = ":443")]
    listen: Listen,
    /// The address for clients without TLS, if the gateways have one, as [ADDRESS]:PORT
    #[arg(long, default_value = ":80")]
    http_listen: Listen,
    /// The gateways' port
    #[arg(long)]
    port: Option<u16>,
    /// The gateways' port for plain HTTP
    #[arg(long)]
    http_port: Option<u16>,
    /// The port of the gateways' /health
    #[arg(long)]
    health_port: Option<u16>,
    /// Start each connection with a PROXY header (version 2), for [gateway] proxy_protocol
    #[arg(long)]
    send_proxy: bool,
    /// haproxy's admin socket, through which a reload takes over the listening sockets
    #[arg(long, value_name = "PATH", default_value = "/run/haproxy/admin.sock")]
    socket: PathBuf,
    /// Write a `stream` block for nginx in place of it
    #[arg(long)]
    nginx: bool,
    /// Write it to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Haproxy {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let Self::Config(config) = self;
        config.run(context)
    }
}

impl HaproxyConfig {
    fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let known = context
            .file()
            .exists()
            .then(|| context.load())
            .transpose()?;
        let section = known.and_then(|config| config.gateway);
        let program = if self.nginx {
            Program::Nginx
        } else {
            Program::Haproxy
        };
        let socket = std::path::absolute(&self.socket).context("--socket")?;
        let options = BalancerOptions {
            hosts: self.hosts,
            listen: self.listen,
            http_listen: self.http_listen,
            http_port: self.http_port,
            port: self.port,
            health: self.health_port,
            send_proxy: self.send_proxy.then_some(true),
            socket: socket.display().to_string(),
        };
        let balancer = Balancer::new(&options, section.as_ref())
            .map_err(|error| Exit::Usage.because(error.to_string()))?;
        let text = balancer.configuration(program);
        let checked = program.check(&text)?;
        let mut warnings = balancer.warnings(program, section.as_ref());
        if checked == Checked::NotInstalled {
            let name = program.name();
            warnings.push(format!(
                "{name} is not installed here: nobody has checked this"
            ));
        }
        for warning in &warnings {
            eprintln!("hsmux: {warning}");
        }
        if let Some(file) = &self.out {
            std::fs::write(file, &text).with_context(|| file.display().to_string())?;
        }
        if context.json {
            output::json(&json!({
                "program": program.name(),
                "configuration": text,
                "checked": checked == Checked::Good,
                "file": self.out,
                "warnings": warnings,
            }))?;
        } else if self.out.is_none() {
            print!("{text}");
        }
        Ok(Exit::Done)
    }
}
