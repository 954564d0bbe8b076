//! Other hosts that may use this one's tokens: each is served as an application is, with the rights of its
//! `[[peer]]`. Who they are is told by whoever has looked at their certificates.

use std::collections::{HashMap, VecDeque};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hsmux_config::{Allowed, Config, no_peer};
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{Entrance, Greeting, Reactor, frame};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::daemon::Running;
use crate::service::{AppService, ListenerService};
use crate::settings::Settings;

/// So many refused connections are remembered.
const REMEMBERED: usize = 8;

/// So many refused connections in a second are worth a line of the log each: anybody can make them.
const LINES: u32 = 20;

/// Who has connected, and who was refused.
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
    last: VecDeque<Refusal>,
    /// The second that runs, and how many were told in it.
    told: Option<(Instant, u32)>,
}

impl RecentRefusals {
    /// True if there may be another line in the log.
    fn may_tell(&mut self) -> bool {
        let running = self
            .told
            .filter(|(since, _)| since.elapsed() < Duration::from_secs(1));
        let (since, lines) = running.unwrap_or_else(|| (Instant::now(), 0));
        self.told = Some((since, lines + 1));
        lines < LINES
    }
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
pub struct Refusal {
    /// When, in seconds after 1970.
    pub at: u64,
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

    /// Serves a connection that came from this address, of the host of this name; who may not connect is told why.
    pub(crate) fn serve_from(&self, running: &Running, name: &str, from: &str, stream: UnixStream) {
        let end = stream.try_clone();
        let Err(error) = self.serve(running, name, stream) else {
            return;
        };
        self.refuse(from, &error.to_string(), "or leave it as it is");
        let mut told = Vec::new();
        if let (Ok(mut end), Ok(())) = (end, frame::encode(&Greeting::Refused(error), &mut told)) {
            // There is room for a first frame; whoever does not read it has gone.
            let _ = end.set_nonblocking(true);
            let _ = end.write_all(&told);
        }
    }

    /// Serves a connection of the host of this name, if it may connect; it says hello as any other.
    pub fn serve(&self, running: &Running, name: &str, stream: UnixStream) -> Result<()> {
        let entrance = self.entrance(running, name)?;
        entrance.take(stream).map_err(|error| {
            let message = format!("a connection of {name} is not taken in: {error}");
            Error::token(Kind::Environment, message)
        })
    }

    fn entrance(&self, running: &Running, name: &str) -> Result<Arc<Entrance>> {
        // Before the configuration is read: what is let in by an old one is changed with the others.
        let mut open = self.open.lock();
        let config = running.config();
        let peer = allowed(&config, name).ok_or_else(|| no_peer(name))?;
        // The service that brings them keeps to half of that, unless it was taken over: some of those that it has closed
        // are still counted here.
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
            host: Some(name.to_owned()),
        };
        let entrance = Arc::new(self.reactor.entrance(Arc::new(listener_service)));
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
            // Its share hangs on how many others there are.
            open.service.change(Settings::of_host(new, peer));
            true
        });
    }

    /// A connection was refused before anybody knew whose it is, or because it is whose it is.
    pub fn refuse(&self, from: &str, problem: &str, advice: &str) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let mut refused = self.refused.lock();
        if refused.may_tell() {
            let [from, problem, advice] = [from, problem, advice].map(printable);
            tracing::warn!(%from, "a host is refused: {problem}; {advice}");
        }
        if refused.last.len() == REMEMBERED {
            refused.last.pop_front();
        }
        refused.last.push_back(Refusal {
            at: since.map_or(0, |since| since.as_secs()),
            from: printable(from),
            problem: printable(problem),
            advice: printable(advice),
        });
    }

    /// How each host of the configuration is.
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

    /// The last that were refused.
    pub fn refused(&self) -> Vec<Refusal> {
        self.refused.lock().last.iter().cloned().collect()
    }
}

/// A service says it, and terminals show it.
fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

fn allowed<'a>(config: &'a Config, name: &str) -> Option<&'a Allowed> {
    config.node.as_ref()?.peer(name)
}
