//! Start and end of the serving side.

use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hsmux_edge::tcp_listener;
use hsmux_service::{Daemon, Service};
use hsmux_token::{Error, Kind, Result};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::gate::Gate;
use crate::guests::Guests;
use crate::revocation::look_at;
use crate::watch::{self, Current};

/// The tokens of this host, offered to others. Dropping it ends their connections.
pub struct Node {
    listening: Vec<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

impl Service for Node {
    /// Reads the certificates, opens the sockets and serves.
    fn start(daemon: &Arc<Daemon>) -> Result<Self> {
        let config = daemon.config();
        let node = config.node.as_ref();
        let node = node.ok_or_else(|| Error::protocol("there is no [node]"))?;
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
        // Each connection has another to the daemon behind it.
        let most = node.connections.min(tcp_listener::files() / 3);
        let gate = Arc::new(Gate {
            daemon: Arc::clone(daemon),
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
        Ok(Self {
            listening,
            runtime: Some(runtime),
        })
    }

    /// Connections that are open go on.
    fn stop_listening(self) -> Option<Self> {
        self.listening.iter().for_each(JoinHandle::abort);
        Some(self)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::pool(Kind::Environment, format!("[node] {what}: {error}"))
}
