//! Connections to another host: TLS, then the greeting.

use std::future::Future;
use std::ops::RangeInclusive;
use std::time::Duration;

use hsmux_token::{Error, Result};
use hsmux_wire::frame::MAX_FRAME;
use hsmux_wire::{Greeting, Hello, decode};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::refusal::Refusal;
use crate::stream::{hear, prepare, say};

/// How long a connection may take, its handshake included.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// What each connection is made of.
pub struct Wanted<'a> {
    pub address: &'a str,
    pub connector: &'a TlsConnector,
    pub server: &'a ServerName<'static>,
    pub client: [u8; 16],
    pub versions: RangeInclusive<u16>,
}

impl Wanted<'_> {
    /// A connection that has been greeted, and its frame version.
    pub async fn connect(&self) -> Result<(TlsStream<TcpStream>, u16)> {
        in_time(async {
            let mut stream = handshake(self.address, self.connector, self.server).await?;
            let hello = Hello {
                oldest: *self.versions.start(),
                newest: *self.versions.end(),
                client: self.client,
                program: "hsmux link".into(),
            };
            say(&mut stream, &hello).await?;
            // What the other end thinks of this one's certificate comes as the first thing to be read.
            let greeting = hear(&mut stream, MAX_FRAME)
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

/// A connection of which nothing has been said yet.
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
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|e| refused(&e))?;
    prepare(&stream).map_err(|e| Error::lost(format!("a socket: {e}")))?;
    let connecting = connector.connect(server.clone(), stream);
    connecting.await.map_err(|e| refused(&e))
}

async fn in_time<T>(connecting: impl Future<Output = Result<T>>) -> Result<T> {
    let within = timeout(CONNECT_WITHIN, connecting).await;
    within.unwrap_or_else(|_| {
        let message = format!("no connection within {} s", CONNECT_WITHIN.as_secs());
        Err(Error::lost(message))
    })
}

fn refused(error: &std::io::Error) -> Error {
    Error::lost(Refusal::of(error).to_string())
}
