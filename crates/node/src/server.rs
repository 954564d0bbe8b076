//! A connection from its first byte until it is served, or refused with a word.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hsmux_config::no_peer;
use hsmux_service::Daemon;
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{Greeting, ServiceClient};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate::PeerCertificate;
use crate::connect_failure::ConnectFailure;
use crate::peer_connections::{ConnectionPermit, ConnectionPurpose, PeerConnections};
use crate::pending_connections::{PendingConnections, PendingSlot};
use crate::revocation::{self, NOT_TAKEN, SAME_CA};
use crate::stream::{lost, pass, prepare, write_message};
use crate::watcher::TlsState;

/// How long a handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// How long a refused peer may take to read why.
const LINGER: Duration = Duration::from_secs(1);

/// The state that all connections share.
pub struct NodeServer {
    /// The daemon that serves them.
    pub daemon: Arc<Daemon>,
    /// Certificates as they are now.
    pub current: ArcSwap<TlsState>,
    /// Connections that are served.
    pub peers: Arc<PeerConnections>,
    /// Connections whose handshake is not done.
    pub pending: Arc<PendingConnections>,
}

impl NodeServer {
    /// Takes connections for ever.
    pub async fn listen(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let slot = self.pending.enter();
                    let server = Arc::clone(&self);
                    tokio::spawn(async move { server.receive(stream, from, slot).await });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of a host");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    async fn receive(&self, stream: TcpStream, from: SocketAddr, slot: PendingSlot) {
        let admitted = tokio::select! {
            admitted = timeout(HANDSHAKE_WITHIN, self.admit(stream, from)) => admitted,
            () = slot.needed() => {
                let problem = "it was not done with its handshake when too many others came";
                return self.refuse(from, problem, "let nobody but hosts reach this port");
            }
        };
        drop(slot);
        let Ok(Some(admitted)) = admitted else {
            return;
        };
        if let Err(error) = self.serve(admitted, from).await {
            tracing::debug!(%from, %error, "a connection of a host has ended");
        }
    }

    /// Serves until one side has ended, or the permit ends.
    async fn serve(&self, admitted: AdmittedPeer, from: SocketAddr) -> Result<()> {
        let AdmittedPeer {
            mut far,
            near,
            name,
            permit,
        } = admitted;
        let served = async {
            match near {
                Some(mut near) => pass(&mut far, &mut near).await.map_err(|e| lost(&e)),
                None => Err(self.exchange(&mut far, &name, from).await),
            }
        };
        tokio::select! {
            served = served => served,
            () = permit.leave.notified() => Ok(()),
        }
    }

    async fn exchange(
        &self,
        far: &mut TlsStream<TcpStream>,
        name: &str,
        from: SocketAddr,
    ) -> Error {
        let identity = || Some(self.daemon.config().node.as_ref()?.identity.clone());
        let complain = |problem: &str| {
            self.refuse(from, &format!("{NOT_TAKEN}: {problem}"), SAME_CA);
        };
        revocation::exchange(far, name, identity, complain).await
    }

    /// All that comes before a connection is served; who is refused is told why.
    async fn admit(&self, stream: TcpStream, from: SocketAddr) -> Option<AdmittedPeer> {
        let (mut far, shown) = self.shake_hands(stream, from).await?;
        let purpose = match far.get_ref().1.alpn_protocol() {
            None => ConnectionPurpose::Work,
            Some(_) => ConnectionPurpose::Lists,
        };
        match self.enter(&shown, purpose, from) {
            // Files may have changed during the handshake.
            Ok(_) if !self.current.load().believes(&shown) => None,
            Ok((permit, near)) => {
                let name = shown.name;
                Some(AdmittedPeer {
                    far,
                    near,
                    name,
                    permit,
                })
            }
            Err(error) => {
                self.refuse(from, &error.to_string(), "or leave it as it is");
                if purpose == ConnectionPurpose::Work
                    && write_message(&mut far, &Greeting::Refused(error))
                        .await
                        .is_ok()
                {
                    linger(&mut far).await;
                }
                None
            }
        }
    }

    /// The TLS handshake; the daemon logs the reason of a failure, and the result is `None`.
    async fn shake_hands(
        &self,
        stream: TcpStream,
        from: SocketAddr,
    ) -> Option<(TlsStream<TcpStream>, PeerCertificate)> {
        prepare(&stream).ok()?;
        // A silent client costs a socket and no TLS state.
        if stream.peek(&mut [0]).await.ok()? == 0 {
            return None;
        }
        let acceptor = TlsAcceptor::from(Arc::clone(&self.current.load().server));
        match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => {
                let shown = PeerCertificate::of(stream.get_ref().1.peer_certificates()?);
                match shown {
                    Ok(shown) => Some((stream, shown)),
                    Err(problem) => {
                        self.refuse(from, &problem, "hsmux node enroll NAME makes good ones");
                        None
                    }
                }
            }
            // A connection without data: a port scan.
            Err((error, _)) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err((error, mut stream)) => {
                let ConnectFailure { problem, advice } = ConnectFailure::of(&error);
                self.refuse(from, &problem, advice);
                linger(&mut stream).await;
                None
            }
        }
    }

    fn refuse(&self, from: SocketAddr, problem: &str, advice: &str) {
        self.daemon.refuse(&from.to_string(), problem, advice);
    }

    /// Takes a permit, and the daemon's end if it is to serve.
    fn enter(
        &self,
        shown: &PeerCertificate,
        purpose: ConnectionPurpose,
        from: SocketAddr,
    ) -> Result<(ConnectionPermit, Option<UnixStream>)> {
        // The daemon also checks this; but a host that it refuses may not get the reason.
        let config = self.daemon.config();
        let section = config.node.as_ref();
        let peer = section.and_then(|node| node.peer(&shown.name));
        peer.ok_or_else(|| no_peer(&shown.name))?;
        let peers = section.map_or(0, |node| node.peers.len());
        let entered = self.peers.enter(shown.clone(), purpose, peers);
        let permit = entered.map_err(|share| {
            let message = format!(
                "{} has {share} connections here, which is its share: give [node] more `connections`, or its \
                 [[token]] fewer `sessions`",
                shown.name
            );
            Error::token(Kind::Busy, message)
        })?;
        let near = match purpose {
            ConnectionPurpose::Work => Some(self.served(shown, from)?),
            ConnectionPurpose::Lists => None,
        };
        Ok((permit, near))
    }

    /// The end of a connection that the daemon serves.
    fn served(&self, shown: &PeerCertificate, from: SocketAddr) -> Result<UnixStream> {
        let near = self.daemon.connect(ServiceClient::Host {
            name: shown.name.clone(),
            from: from.to_string(),
        })?;
        let near = near
            .set_nonblocking(true)
            .and_then(|()| UnixStream::from_std(near));
        near.map_err(|error| Error::lost(format!("a socket: {error}")))
    }
}

/// A connection of an authorised host.
struct AdmittedPeer {
    far: TlsStream<TcpStream>,
    /// The daemon serves its end. Without one the connection is for lists.
    near: Option<UnixStream>,
    name: String,
    permit: ConnectionPermit,
}

/// A connection closed with unread data would lose the last message.
async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let read_all = async {
        let _ = stream.shutdown().await;
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await.is_ok_and(|read| read > 0) {}
    };
    let _ = timeout(LINGER, read_all).await;
}
