//! Connections to another host: TLS, then the greeting.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use hsmux_token::{Error, Result};
use hsmux_wire::frame::MAX_FRAME;
use hsmux_wire::{Greeting, Hello, decode};
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::connect_failure::ConnectFailure;
use crate::stream::{prepare, read_frame, write_message};

/// The time limit of a connection, including the handshake.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// The time limit of one address of a host that has others: a firewall may drop all packets to it.
const ADDRESS_WITHIN: Duration = Duration::from_secs(3);

/// The parameters that all connections to one host share.
pub struct ConnectRequest<'a> {
    pub address: &'a str,
    pub connector: &'a TlsConnector,
    pub server: &'a ServerName<'static>,
    pub client: [u8; 16],
    pub versions: RangeInclusive<u16>,
}

impl ConnectRequest<'_> {
    /// A connection after the greeting, and its frame version.
    pub async fn connect(&self) -> Result<(TlsStream<TcpStream>, u16)> {
        in_time(async {
            let mut stream = handshake(self.address, self.connector, self.server).await?;
            let hello = Hello {
                oldest: *self.versions.start(),
                newest: *self.versions.end(),
                client: self.client,
                program: "hsmux link".into(),
            };
            write_message(&mut stream, &hello).await?;
            // TLS 1.3: the server's verdict on this host's certificate comes with the first read.
            let greeting = read_frame(&mut stream, MAX_FRAME)
                .await
                .map_err(|e| refused(&e))?;
            match decode(greeting)? {
                Greeting::Welcome(welcome) => Ok((stream, welcome.version)),
                Greeting::Refused(error) => Err(error),
            }
        })
        .await
    }
}

/// A connection before the greeting.
pub async fn secure(
    address: &str,
    connector: &TlsConnector,
    server: &ServerName<'static>,
) -> Result<TlsStream<TcpStream>> {
    in_time(handshake(address, connector, server)).await
}

async fn handshake(
    address: &str,
    connector: &TlsConnector,
    server: &ServerName<'static>,
) -> Result<TlsStream<TcpStream>> {
    let addresses = lookup_host(address).await.map_err(|e| refused(&e))?;
    let stream = reach(addresses).await.map_err(|e| refused(&e))?;
    prepare(&stream).map_err(|e| Error::lost(format!("a socket: {e}")))?;
    let connecting = connector.connect(server.clone(), stream);
    connecting.await.map_err(|e| refused(&e))
}

/// Connects to the first address of a host that answers.
async fn reach(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.peekable();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "this name has no address");
    while let Some(address) = addresses.next() {
        let connecting = TcpStream::connect(address);
        let connected = if addresses.peek().is_some() {
            let within = timeout(ADDRESS_WITHIN, connecting).await;
            within.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        } else {
            connecting.await
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn in_time<T>(connecting: impl Future<Output = Result<T>>) -> Result<T> {
    let within = timeout(CONNECT_WITHIN, connecting).await;
    within.unwrap_or_else(|_| {
        let message = format!("no connection within {} s", CONNECT_WITHIN.as_secs());
        Err(Error::lost(message))
    })
}

fn refused(error: &io::Error) -> Error {
    Error::lost(ConnectFailure::of(error).to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use rustls::crypto::ring::default_provider;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn a_host_that_does_no_handshake_is_given_up_after_ten_seconds() {
        // Linux completes connections in its queue.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let server = ServerName::try_from("web2").unwrap();
        let begun = Instant::now();
        let error = secure(&address, &connector, &server).await.map(drop);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no connection within 10 s"), "{error}");
        let waited = begun.elapsed();
        assert!((10..60).contains(&waited.as_secs()), "{waited:?}");
    }

    #[tokio::test]
    async fn an_address_that_is_silent_or_refuses_hides_no_other() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let there = TcpListener::bind(any).await.unwrap();
        let good = there.local_addr().unwrap();
        // No thread accepts here; once the queue is full, the kernel drops further packets.
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind(any).unwrap();
        let queue = silent.listen(0).unwrap();
        let silent = queue.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(connected) = timeout(ADDRESS_WITHIN, TcpStream::connect(silent)).await {
            waiting.push(connected.unwrap());
        }
        let refusing: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let reached = in_time(async {
            let reached = reach([silent, refusing, good].into_iter()).await;
            reached.map_err(|e| refused(&e))
        });
        assert_eq!(reached.await.unwrap().peer_addr().unwrap(), good);
        let error = reach([refusing].into_iter()).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
