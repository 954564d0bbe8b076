//! Start and end of the serving side.

use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hsmux_edge::tcp_listener;
use hsmux_service::{Daemon, ServiceProcess};
use hsmux_token::{Error, Kind, Result};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::peer_connections::PeerConnections;
use crate::revocation::look_at;
use crate::server::NodeServer;
use crate::watcher::{self, TlsState};

/// The tokens of this host, offered to others. Dropping it ends their connections.
pub struct NodeService {
    listening: Vec<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

impl ServiceProcess for NodeService {
    /// Reads the certificates, opens the sockets and serves.
    fn start(daemon: &Arc<Daemon>) -> Result<Self> {
        let config = daemon.config();
        let node = config.node.as_ref();
        let node = node.ok_or_else(|| Error::protocol("there is no [node]"))?;
        let current = TlsState::read(&node.identity)?;
        node.identity.revoked.iter().for_each(|file| look_at(file));
        let sockets: Vec<StdListener> = node
            .listen
            .iter()
            .map(|address| {
                let listener = daemon.listen("listen", *address);
                listener.map_err(|e| failed(&format!("listen {address}"), &e))
            })
            .collect::<Result<_>>()?;
        // The number of threads: passing bytes on costs little compared with signatures.
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("hsmux-node")
            .enable_all()
            .build()
            .map_err(|e| failed("threads", &e))?;
        // Each connection has a second one, to the daemon.
        let most = node.connections.min(tcp_listener::files() / 3);
        let server = Arc::new(NodeServer {
            daemon: Arc::clone(daemon),
            current: ArcSwap::from_pointee(current),
            peers: Arc::new(PeerConnections::new(most)),
            pending: Arc::default(),
        });
        let at = |listener: &StdListener| listener.local_addr().ok();
        let addresses: Vec<_> = sockets.iter().filter_map(at).collect();
        let inside = runtime.enter();
        let mut listening = Vec::new();
        for socket in sockets {
            let listener = TcpListener::from_std(socket).map_err(|e| failed("a socket", &e))?;
            listening.push(runtime.spawn(Arc::clone(&server).listen(listener)));
        }
        runtime.spawn(watcher::run(server));
        drop(inside);
        tracing::info!(?addresses, "the node serves");
        Ok(Self {
            listening,
            runtime: Some(runtime),
        })
    }

    /// Closes the listeners; open connections go on.
    fn stop_listening(self) -> Option<Self> {
        self.listening.iter().for_each(JoinHandle::abort);
        Some(self)
    }
}

impl Drop for NodeService {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::pool(Kind::Environment, format!("[node] {what}: {error}"))
}
