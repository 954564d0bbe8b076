//! Sockets: accept connections, give each a slot, and serve it.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hsmux_config::Socket;
use hsmux_edge::unix_listener::SocketFile;
use hsmux_service::Daemon;
use hsmux_token::{Error, Kind, Result};
use rustls::{HandshakeKind, ProtocolVersion};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{serve, wait_until_set};
use super::connections::{ConnectionSlot, Connections};
use super::timeout_stream::TimeoutStream;
use super::tls::Https;
use super::{Broker, Peer, PeerTls};
use crate::auth;

/// A connection whose TLS handshake takes longer is closed.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// At the end, connections in the queue are still accepted: the time for all of them, and for the next one.
const DRAIN_GRACE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(20));

/// The state that all listeners share.
#[derive(Clone)]
pub struct AppState {
    pub broker: Arc<Broker>,
    pub app: Router,
    pub connections: Arc<Connections>,
    /// No more connections.
    pub end: watch::Receiver<bool>,
    /// No more requests on those that are open.
    pub closing: watch::Receiver<bool>,
}

/// A socket that is open.
pub enum Listener {
    /// HTTP, or HTTPS.
    Tcp(StdListener, Option<Arc<Https>>),
    /// HTTP on a unix socket, which is removed with this.
    Unix(std::os::unix::net::UnixListener, Arc<SocketFile>),
}

impl Listener {
    /// Opens an address.
    pub fn tcp(daemon: &Daemon, address: SocketAddr, https: Option<Arc<Https>>) -> Result<Self> {
        let failed = |e: std::io::Error| {
            let message = format!("[broker] listen {address}: {e}");
            Error::pool(Kind::Environment, message)
        };
        let listener = daemon.listen("listen", address).map_err(failed)?;
        Ok(Self::Tcp(listener, https))
    }

    /// Opens a unix socket; a socket file of an earlier broker is replaced.
    pub fn unix(daemon: &Daemon, socket: &Socket) -> Result<Self> {
        let (listener, file) = daemon.listen_unix(socket)?;
        listener.set_nonblocking(true).map_err(|e| {
            let path = socket.path.display();
            Error::pool(Kind::Environment, format!("[broker] socket {path}: {e}"))
        })?;
        Ok(Self::Unix(listener, Arc::new(file)))
    }

    /// The file of a unix socket.
    pub fn file(&self) -> Option<Arc<SocketFile>> {
        match self {
            Self::Tcp(..) => None,
            Self::Unix(_, file) => Some(Arc::clone(file)),
        }
    }

    /// The address of the listener, with the port that the system has chosen.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Serves until `end` says so.
    pub async fn serve(self, state: AppState) -> std::io::Result<()> {
        let open = AsyncListener::of(self)?;
        let mut end = state.end.clone();
        loop {
            tokio::select! {
                () = wait_until_set(&mut end) => break,
                accepted = open.accept() => state.handle(accepted).await,
            }
        }
        let (all, next) = DRAIN_GRACE;
        let last = Instant::now() + all;
        while let Ok(accepted) = timeout_at(last.min(Instant::now() + next), open.accept()).await {
            state.handle(accepted).await;
        }
        Ok(())
    }
}

impl AppState {
    async fn handle(&self, accepted: std::io::Result<AcceptedStream>) {
        let stream = match accepted {
            Ok(stream) => stream,
            // For example, no descriptors are left: try again a little later.
            Err(error) => {
                tracing::warn!(%error, "a connection to the broker was not accepted");
                return tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let mut closing = self.closing.clone();
        let slot = tokio::select! {
            slot = self.connections.slot() => slot,
            // All are busy to the last.
            () = wait_until_set(&mut closing) => return,
        };
        let state = self.clone();
        tokio::spawn(async move {
            let _counted = state.broker.metrics.connection();
            stream.serve(&state, &slot).await;
        });
    }
}

/// A listener on the runtime.
enum AsyncListener {
    Tcp(TcpListener, Option<Arc<Https>>),
    Unix(
        UnixListener,
        #[allow(dead_code, reason = "held, not read")] Arc<SocketFile>,
    ),
}

/// A connection.
enum AcceptedStream {
    Tcp(TcpStream, Peer, Option<Arc<Https>>),
    Unix(UnixStream, Peer),
}

impl AsyncListener {
    fn of(listener: Listener) -> std::io::Result<Self> {
        Ok(match listener {
            Listener::Tcp(listener, https) => Self::Tcp(TcpListener::from_std(listener)?, https),
            Listener::Unix(listener, file) => Self::Unix(UnixListener::from_std(listener)?, file),
        })
    }

    async fn accept(&self) -> std::io::Result<AcceptedStream> {
        match self {
            Self::Tcp(listener, https) => {
                let (stream, address) = listener.accept().await?;
                let peer = Peer {
                    address: address.to_string(),
                    ip: Some(address.ip()),
                    secure: https.is_some(),
                    identities: Vec::new(),
                    tls: None,
                };
                Ok(AcceptedStream::Tcp(stream, peer, https.clone()))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred()?.uid();
                let peer = Peer {
                    address: "unix".into(),
                    ip: None,
                    secure: false,
                    identities: vec![format!("uid:{user}")],
                    tls: None,
                };
                Ok(AcceptedStream::Unix(stream, peer))
            }
        }
    }
}

impl AcceptedStream {
    async fn serve(self, state: &AppState, slot: &ConnectionSlot) {
        let limits = state.broker.usage.load().limits().clone();
        let (app, closing) = (state.app.clone(), state.closing.clone());
        let activity = || Arc::clone(slot.activity());
        match self {
            Self::Unix(stream, peer) => {
                let stream = TimeoutStream::new(stream, activity(), &limits);
                serve(app, &state.broker, stream, peer, slot, closing).await;
            }
            Self::Tcp(stream, peer, None) => {
                let stream = TimeoutStream::new(stream, activity(), &limits);
                serve(app, &state.broker, stream, peer, slot, closing).await;
            }
            Self::Tcp(stream, mut peer, Some(https)) => {
                let shaken = tokio::select! {
                    shaken = timeout(HANDSHAKE, https.acceptor().accept(stream)) => shaken,
                    () = slot.evicted() => return,
                };
                // A client may close its connection at any time.
                let Ok(Ok(stream)) = shaken else { return };
                let tls = stream.get_ref().1;
                peer.tls = Some(PeerTls {
                    version: match tls.protocol_version() {
                        Some(ProtocolVersion::TLSv1_3) => "1.3",
                        _ => "1.2",
                    },
                    resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
                });
                let shown = tls.peer_certificates();
                let shown = shown.map_or_else(Vec::new, <[_]>::to_vec);
                let own = shown.first();
                peer.identities = own.map(|der| auth::of_certificate(der)).unwrap_or_default();
                let stream = TimeoutStream::new(stream, activity(), &limits);
                tokio::select! {
                    () = serve(app, &state.broker, stream, peer, slot, closing) => {}
                    () = https.refused(&shown) => {}
                }
            }
        }
    }
}
