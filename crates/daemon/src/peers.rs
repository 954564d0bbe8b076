//! Other hosts that may use the tokens of this host. Each is served like an application, with the rights of its
//! `[[peer]]`. The caller has verified their certificates and tells their names.

use std::collections::{HashMap, VecDeque};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use hsmux_config::{Allowed, Config, no_peer};
use hsmux_state::Timestamp;
use hsmux_token::{Error, Kind, LogLines, Result};
use hsmux_wire::{Admitted, Entrance, Greeting, Reactor, ServiceClient, frame};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::daemon::Running;
use crate::service::{AppService, ListenerService};
use crate::settings::Settings;

/// The number of refused connections that are remembered.
const REMEMBERED: usize = 8;

/// The connections of other hosts, and the refused ones.
pub struct Peers {
    reactor: Arc<Reactor>,
    open: Mutex<HashMap<String, PeerEntrance>>,
    refused: Mutex<RecentRefusals>,
}

struct PeerEntrance {
    service: Arc<AppService>,
    entrance: Arc<Entrance>,
}

#[derive(Default)]
struct RecentRefusals {
    last: VecDeque<HostRefusal>,
    /// Lines of the log about them: any host can cause them.
    lines: LogLines,
}

/// A host that may connect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name, as its certificate says it.
    pub name: String,
    /// The number of open connections.
    pub connections: usize,
}

/// A connection that was refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostRefusal {
    /// When.
    pub at: Timestamp,
    /// Address and port that it came from.
    pub from: String,
    /// Why.
    pub problem: String,
    /// What to do about it.
    pub advice: String,
}

impl Peers {
    pub(crate) fn new(reactor: Arc<Reactor>) -> Self {
        Self {
            reactor,
            open: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Serves a connection of this host from this address. A host that may not connect is told the reason.
    pub(crate) fn serve_from(
        &self,
        running: &Running,
        name: &str,
        from: &str,
        stream: UnixStream,
    ) -> Option<Admitted> {
        let end = stream.try_clone();
        let error = match self.serve(running, name, stream) {
            Ok(admitted) => return Some(admitted),
            Err(error) => error,
        };
        self.refuse(from, &error.to_string(), "or leave it as it is");
        let mut told = Vec::new();
        if let (Ok(mut end), Ok(())) = (end, frame::encode(&Greeting::Refused(error), &mut told)) {
            // The socket's buffer has room for a first frame. A host that does not read it has gone.
            let _ = end.set_nonblocking(true);
            let _ = end.write_all(&told);
        }
        None
    }

    /// Serves a connection of this host, if it may connect. The connection says hello like any other.
    pub fn serve(&self, running: &Running, name: &str, stream: UnixStream) -> Result<Admitted> {
        let entrance = self.entrance(running, name)?;
        entrance.take(stream).map_err(|error| {
            let message = format!("a connection of {name} is not taken in: {error}");
            Error::token(Kind::Environment, message)
        })
    }

    fn entrance(&self, running: &Running, name: &str) -> Result<Arc<Entrance>> {
        // Locked before the configuration is read: a connection that is admitted by an old configuration is changed
        // with the others.
        let mut open = self.open.lock();
        let config = running.config();
        let peer = allowed(&config, name).ok_or_else(|| no_peer(name))?;
        // The node keeps to half of this limit, unless it was taken over. Connections that it has closed may still
        // count here.
        let most = config.node.as_ref().map_or(0, |node| 2 * node.connections);
        let there: usize = open.values().map(|open| open.entrance.connections()).sum();
        if there >= most {
            let message = format!("hosts have {there} connections, twice [node] connections");
            return Err(Error::token(Kind::Busy, message));
        }
        if let Some(open) = open.get(name) {
            return Ok(Arc::clone(&open.entrance));
        }
        let settings = Settings::of_host(&config, peer);
        let service = AppService::new(Arc::clone(&running.shared), settings);
        let listener_service = ListenerService {
            service: Arc::clone(&service),
            client: Some(ServiceClient::Host {
                name: name.to_owned(),
                from: String::new(),
            }),
        };
        let entrance = Arc::new(
            self.reactor
                .entrance(Arc::new(listener_service), usize::MAX),
        );
        let made = PeerEntrance {
            service,
            entrance: Arc::clone(&entrance),
        };
        open.insert(name.to_owned(), made);
        Ok(entrance)
    }

    /// Takes over another configuration.
    pub(crate) fn change(&self, new: &Config) {
        self.open.lock().retain(|name, open| {
            let old = open.service.settings.load_full();
            let Some(peer) = allowed(new, name) else {
                open.service.change(old.close());
                return false;
            };
            // Its share depends on the number of hosts.
            open.service.change(Settings::of_host(new, peer));
            true
        });
    }

    /// Records a refused connection, whether its host is known or not.
    pub fn refuse(&self, from: &str, problem: &str, advice: &str) {
        let mut refused = self.refused.lock();
        if refused.lines.may_add() {
            let [from, problem, advice] = [from, problem, advice].map(printable);
            tracing::warn!(%from, "a host is refused: {problem}; {advice}");
        }
        if refused.last.len() == REMEMBERED {
            refused.last.pop_front();
        }
        refused.last.push_back(HostRefusal {
            at: Timestamp::now(),
            from: printable(from),
            problem: printable(problem),
            advice: printable(advice),
        });
    }

    /// The state of each host of the configuration.
    pub(crate) fn status(&self, config: &Config) -> Vec<PeerStatus> {
        let open = self.open.lock();
        let peers = config.node.iter().flat_map(|node| &node.peers);
        let status = |peer: &Allowed| PeerStatus {
            name: peer.name.clone(),
            connections: open
                .get(&peer.name)
                .map_or(0, |open| open.entrance.connections()),
        };
        peers.map(status).collect()
    }

    /// The last refused connections.
    pub fn refused(&self) -> Vec<HostRefusal> {
        self.refused.lock().last.iter().cloned().collect()
    }
}

/// Replaces control characters by spaces: the text comes from a service, and terminals show it.
fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

fn allowed<'a>(config: &'a Config, name: &str) -> Option<&'a Allowed> {
    config.node.as_ref()?.peer(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_eight_refused_hosts_are_remembered() {
        let peers = Peers::new(Reactor::start().unwrap());
        for port in 0..20 {
            peers.refuse(&port.to_string(), "none", "none");
        }
        let last = peers.refused().into_iter().map(|host| host.from);
        let expected = (12..20).map(|port| port.to_string());
        assert_eq!(last.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}
