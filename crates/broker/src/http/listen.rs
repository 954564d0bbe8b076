//! Sockets: accept, serve each connection, let what runs end.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hsmux_pool::config::Socket;
use hsmux_pool::socket::{self, SocketFile};
use hsmux_token::{Error, Kind, Result};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::{Broker, Peer, app};
use crate::auth;

/// A client that takes longer for its TLS handshake, or for the head of a request, is let go.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket that is open.
pub enum Listener {
    /// HTTP, or HTTPS.
    Tcp(StdListener, Option<Arc<ServerConfig>>),
    /// HTTP on a unix socket, which is removed with this.
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

impl Listener {
    /// Opens an address.
    pub fn tcp(address: SocketAddr, tls: Option<Arc<ServerConfig>>) -> Result<Self> {
        let failed = |e: std::io::Error| {
            let message = format!("[broker] listen {address}: {e}");
            Error::pool(Kind::Environment, message)
        };
        let listener = StdListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self::Tcp(listener, tls))
    }

    /// Opens a unix socket; one that a broker has left behind makes room.
    pub fn unix(socket: &Socket) -> Result<Self> {
        let (listener, file) = socket::listen(socket)?;
        listener.set_nonblocking(true).map_err(|e| {
            let path = socket.path.display();
            Error::pool(Kind::Environment, format!("[broker] socket {path}: {e}"))
        })?;
        Ok(Self::Unix(listener, file))
    }

    /// Where it listens, with the port that the system has chosen.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Serves until `end` says so; returns when what ran has ended.
    pub async fn serve(
        self,
        broker: Arc<Broker>,
        mut end: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let (app, open) = (app(Arc::clone(&broker)), Open::of(self)?);
        let graceful = GracefulShutdown::new();
        loop {
            tokio::select! {
                () = said(&mut end) => break,
                accepted = open.accept() => match accepted {
                    Ok(stream) => {
                        let counted = broker.metrics.connection();
                        let serving = stream.serve(app.clone(), graceful.watcher());
                        tokio::spawn(async move {
                            serving.await;
                            drop(counted);
                        });
                    }
                    // The system has no more descriptors, for example: a little later again.
                    Err(error) => {
                        tracing::warn!(%error, "a connection to the broker was not accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        // Nobody else may connect while what runs ends.
        drop(open);
        graceful.shutdown().await;
        Ok(())
    }
}

/// Waits for the word; whoever would say it being gone is as good.
async fn said(end: &mut watch::Receiver<bool>) {
    let _ = end.wait_for(|end| *end).await;
}

/// A listener on the runtime.
enum Open {
    Tcp(TcpListener, Option<TlsAcceptor>),
    Unix(
        UnixListener,
        #[allow(dead_code, reason = "held, not read")] SocketFile,
    ),
}

/// A connection.
enum Stream {
    Tcp(TcpStream, Peer, Option<TlsAcceptor>),
    Unix(UnixStream, Peer),
}

impl Open {
    fn of(listener: Listener) -> std::io::Result<Self> {
        Ok(match listener {
            Listener::Tcp(listener, tls) => {
                Self::Tcp(TcpListener::from_std(listener)?, tls.map(TlsAcceptor::from))
            }
            Listener::Unix(listener, file) => Self::Unix(UnixListener::from_std(listener)?, file),
        })
    }

    async fn accept(&self) -> std::io::Result<Stream> {
        match self {
            Self::Tcp(listener, tls) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let peer = Peer {
                    address: address.to_string(),
                    identities: Vec::new(),
                };
                Ok(Stream::Tcp(stream, peer, tls.clone()))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred()?.uid();
                let peer = Peer {
                    address: "unix".into(),
                    identities: vec![format!("uid:{user}")],
                };
                Ok(Stream::Unix(stream, peer))
            }
        }
    }
}

impl Stream {
    async fn serve(self, app: Router, watcher: Watcher) {
        match self {
            Self::Unix(stream, peer) => serve_one(app, stream, peer, watcher).await,
            Self::Tcp(stream, peer, None) => serve_one(app, stream, peer, watcher).await,
            Self::Tcp(stream, mut peer, Some(tls)) => {
                let shaken = tokio::time::timeout(PATIENCE, tls.accept(stream)).await;
                // A client that breaks off is its own affair.
                let Ok(Ok(stream)) = shaken else { return };
                let shown = stream.get_ref().1.peer_certificates();
                let own = shown.and_then(<[_]>::first);
                peer.identities = own.map(|der| auth::of_certificate(der)).unwrap_or_default();
                serve_one(app, stream, peer, watcher).await;
            }
        }
    }
}

async fn serve_one(
    app: Router,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    watcher: Watcher,
) {
    let service = app.map_request(move |mut request: Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer.clone());
        request
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256);
    let connection = builder
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .into_owned();
    // A client that breaks off is its own affair.
    let _ = watcher.watch(connection).await;
}
