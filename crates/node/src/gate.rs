//! A connection from its first byte until it is served, or refused with a word.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hsmux_daemon::Running;
use hsmux_token::{Error, Result};
use hsmux_wire::Greeting;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate::Shown;
use crate::guests::Guests;
use crate::refusal::Refusal;
use crate::stream::{pass, prepare, say};
use crate::watch::Current;

/// How long a handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// How long a refused peer may take to read why.
const LINGER: Duration = Duration::from_secs(1);

/// What all connections share.
pub struct Gate {
    /// The daemon that serves them.
    pub running: Arc<Running>,
    /// Certificates as they are now.
    pub current: ArcSwap<Current>,
    /// Connections that are served.
    pub guests: Arc<Guests>,
    /// Places for connections.
    pub places: Arc<Semaphore>,
}

impl Gate {
    /// Takes connections for ever.
    pub async fn listen(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    // One too many is closed at once.
                    let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                        continue;
                    };
                    let gate = Arc::clone(&self);
                    tokio::spawn(async move {
                        gate.receive(stream, from).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of a host");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    async fn receive(&self, stream: TcpStream, from: SocketAddr) {
        let shaken = timeout(HANDSHAKE_WITHIN, self.shake_hands(stream, from));
        let Ok(Some((stream, shown))) = shaken.await else {
            return;
        };
        if let Err(error) = self.serve(stream, shown, from).await {
            tracing::debug!(%from, %error, "a connection of a host has ended");
        }
    }

    /// The handshake; who fails it is told why, and `None` is answered.
    async fn shake_hands(
        &self,
        stream: TcpStream,
        from: SocketAddr,
    ) -> Option<(TlsStream<TcpStream>, Shown)> {
        prepare(&stream).ok()?;
        let acceptor = TlsAcceptor::from(Arc::clone(&self.current.load().server));
        match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => {
                let shown = stream.get_ref().1.peer_certificates()?.first()?;
                let shown = Shown::of(shown);
                match shown {
                    Ok(shown) => Some((stream, shown)),
                    Err(problem) => {
                        self.refuse(from, &problem, "hsmux node enroll makes good ones");
                        None
                    }
                }
            }
            // A connection that brings nothing: somebody looks whether the port is open.
            Err((error, _)) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err((error, mut stream)) => {
                let Refusal { problem, advice } = Refusal::of(&error);
                self.refuse(from, &problem, advice);
                linger(&mut stream).await;
                None
            }
        }
    }

    fn refuse(&self, from: SocketAddr, problem: &str, advice: &str) {
        let peers = self.running.peers();
        peers.refuse(&from.to_string(), problem, advice);
    }

    async fn serve(
        &self,
        mut stream: TlsStream<TcpStream>,
        shown: Shown,
        from: SocketAddr,
    ) -> Result<()> {
        let stay = self.guests.enter(shown.clone());
        // It may have been revoked since its handshake began, and before it was among the guests.
        if self.current.load().revoked.contains(&shown.serial) {
            return Ok(());
        }
        let served = self.served(&shown);
        let mut near = match served {
            Ok(near) => near,
            Err(error) => {
                self.refuse(from, &error.to_string(), "or leave it as it is");
                say(&mut stream, &Greeting::Refused(error)).await?;
                linger(&mut stream).await;
                return Ok(());
            }
        };
        tokio::select! {
            passed = pass(&mut stream, &mut near) => {
                passed.map_err(|error| Error::lost(error.to_string()))
            }
            () = stay.leave.notified() => Ok(()),
        }
    }

    /// The end of a connection that the daemon serves.
    fn served(&self, shown: &Shown) -> Result<UnixStream> {
        let failed = |error: io::Error| Error::lost(format!("a socket: {error}"));
        let (near, served) = StdUnixStream::pair().map_err(failed)?;
        near.set_nonblocking(true).map_err(failed)?;
        let near = UnixStream::from_std(near).map_err(failed)?;
        let peers = self.running.peers();
        peers.serve(&self.running, &shown.name, served)?;
        Ok(near)
    }
}

/// Closed at once, with something unread, a connection would take away the last word.
async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let read_all = async {
        let _ = stream.shutdown().await;
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await.is_ok_and(|read| read > 0) {}
    };
    let _ = timeout(LINGER, read_all).await;
}
