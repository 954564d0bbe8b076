//! Start and end of the serving side.

use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hsmux_daemon::Running;
use hsmux_edge::tcp_listener;
use hsmux_token::{Error, Kind, Result};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::gate::Gate;
use crate::guests::Guests;
use crate::revocation::look_at;
use crate::watch::{self, Current};

/// The tokens of this host, offered to others. Dropping it ends their connections.
pub struct Service {
    listening: Vec<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

impl Service {
    /// Reads the certificates, opens the sockets and serves; nothing where the configuration says that this
    /// host only uses others.
    pub fn start(running: &Arc<Running>) -> Result<Option<Self>> {
        let config = running.config();
        let node = match &config.node {
            Some(node) if !node.listen.is_empty() => node,
            _ => return Ok(None),
        };
        let current = Current::read(&node.identity)?;
        node.identity.revoked.iter().for_each(|file| look_at(file));
        let sockets: Vec<StdListener> = node
            .listen
            .iter()
            .map(|address| {
                tcp_listener::listen(*address).map_err(|e| failed(&format!("listen {address}"), &e))
            })
            .collect::<Result<_>>()?;
        // Passing bytes on is a small part of what their signatures cost.
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("hsmux-node")
            .enable_all()
            .build()
            .map_err(|e| failed("threads", &e))?;
        // Each connection has a socket of the daemon behind it, of which both ends are here.
        let most = node.connections.min(tcp_listener::files() / 3);
        let gate = Arc::new(Gate {
            running: Arc::clone(running),
            current: ArcSwap::from_pointee(current),
            guests: Arc::new(Guests::new(most)),
            lobby: Arc::default(),
        });
        let at = |listener: &StdListener| listener.local_addr().ok();
        let addresses: Vec<_> = sockets.iter().filter_map(at).collect();
        let inside = runtime.enter();
        let mut listening = Vec::new();
        for socket in sockets {
            let listener = TcpListener::from_std(socket).map_err(|e| failed("a socket", &e))?;
            listening.push(runtime.spawn(Arc::clone(&gate).listen(listener)));
        }
        runtime.spawn(watch::run(gate));
        drop(inside);
        tracing::info!(?addresses, "the node serves");
        Ok(Some(Self {
            listening,
            runtime: Some(runtime),
        }))
    }

    /// No more connections; those that are open go on.
    pub fn stop_listening(&self) {
        self.listening.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::pool(Kind::Environment, format!("[node] {what}: {error}"))
}
