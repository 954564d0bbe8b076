//! Services of this host that are processes of their own: the daemon starts them, serves the connections that they give
//! it, tells them what is in force, and starts them anew when they have ended.
//!
//! A service parses what strangers send. It holds no PIN and no module, and what it may use is decided here, as for
//! every other connection.

mod connections;
mod events;
mod kept_sockets;
mod link_socket;
mod process;
mod restarts;
mod supervisor;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_config::Config;
use hsmux_token::{Error, Kind, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::daemon::Running;
pub(crate) use process::{as_written, started_by};
use supervisor::ServiceSupervisor;

/// What the services are called.
pub(crate) const BROKER: &str = "broker";
pub(crate) const GATEWAY: &str = "gateway";
pub(crate) const NODE: &str = "node";

/// What else an end takes.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What the broker does after its last request: spans and audit events are sent.
const BROKER_LAST: Duration = Duration::from_secs(10);

/// How services are started.
#[derive(Clone, Debug)]
pub struct ServiceProgram {
    /// The program.
    pub file: PathBuf,
    /// Its arguments, before the service's name.
    pub arguments: Vec<String>,
}

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceName {
    /// Keys over HTTP.
    Broker,
    /// TLS in front of web servers.
    Gateway,
    /// Tokens for other hosts.
    Node,
}

impl ServiceName {
    /// Its section and its process.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Broker => BROKER,
            Self::Gateway => GATEWAY,
            Self::Node => NODE,
        }
    }
}

/// How a service is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// `broker`, `gateway` or `node`.
    pub name: String,
    /// `starting`, `serving` or `ended`.
    pub state: ServiceState,
    /// Its process id, while there is a process.
    pub pid: Option<u32>,
    /// How often it was started again after it had ended.
    pub restarts: u64,
    /// Why it ended last, if it has.
    pub problem: Option<String>,
}

/// The state of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceState {
    /// It has been started, and has not said yet that it serves.
    #[default]
    Starting,
    /// It serves.
    Serving,
    /// It has ended, and is started again in a moment.
    Ended,
}

/// All services of a daemon.
#[derive(Default)]
pub struct Services(Mutex<Vec<Arc<ServiceSupervisor>>>);

impl Services {
    /// Starts those that the configuration names, and waits until each of them serves. An error is that of the first one
    /// that cannot.
    pub fn start(&self, running: &Arc<Running>, program: &ServiceProgram) -> Result<()> {
        for name in named(&running.config()) {
            let service = ServiceSupervisor::start(name, running, program)?;
            self.0.lock().push(Arc::new(service));
        }
        Ok(())
    }

    /// Another configuration is in force.
    pub(crate) fn change(&self, new: &Config) {
        for service in &*self.0.lock() {
            service.tell_configuration(new);
        }
    }

    /// No service takes new clients any more; those that are there are served.
    pub fn stop_listening(&self) {
        for service in &*self.0.lock() {
            service.stop_listening();
        }
    }

    /// Waits for those that end when their clients have gone: as long as the configuration gives them for that.
    pub(crate) fn drain(&self, config: &Config) {
        let begun = Instant::now();
        // Without the lock: meanwhile administrators ask how services are.
        let services = self.0.lock().clone();
        for service in services {
            let Some(within) = drain_time(service.name(), config) else {
                continue;
            };
            if !service.has_ended_by(begun + within) {
                tracing::warn!("the {} does not end, and is killed", service.name());
            }
        }
    }

    /// Ends them all.
    pub fn end(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        for service in &all {
            service.begin_end();
        }
        for service in &all {
            service.join();
        }
    }

    /// Replaces the process of a service by a new one, from the program's file. Answers what has become of them.
    pub(crate) fn restart(&self, name: ServiceName, config: &Config) -> Result<String> {
        let name = name.as_str();
        let service = {
            let services = self.0.lock();
            let found = services.iter().find(|service| service.name() == name);
            found.cloned()
        };
        let service = service.ok_or_else(|| {
            let message =
                format!("the daemon has no {name}: [{name}] was not there when it started; systemctl restart hsmux starts it");
            Error::request(Kind::Invalid, message)
        })?;
        service.restart(drain_time(name, config).unwrap_or(END_WITHIN))
    }

    /// How they are.
    pub(crate) fn status(&self) -> Vec<ServiceStatus> {
        self.0
            .lock()
            .iter()
            .map(|service| service.status())
            .collect()
    }
}

/// How long a service may take to end with its clients; `None`: it does not end by itself.
fn drain_time(name: &str, config: &Config) -> Option<Duration> {
    let within = match (name, &config.gateway) {
        (GATEWAY, Some(gateway)) => gateway.leave_time + gateway.drain_timeout,
        (BROKER, _) => config.pool.deadline + BROKER_LAST,
        _ => return None,
    };
    Some(within + END_WITHIN)
}

/// Services of this configuration that are processes of their own.
fn named(config: &Config) -> impl Iterator<Item = &'static str> {
    let broker = config.broker.iter().map(|_| BROKER);
    let gateway = config.gateway.iter().map(|_| GATEWAY);
    let node = config.node.iter().filter(|node| !node.listen.is_empty());
    broker.chain(gateway).chain(node.map(|_| NODE))
}
