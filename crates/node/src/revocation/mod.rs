//! Exchange of revocation lists between hosts. Both ends of a link send the lists that the other one lacks, at the
//! start and when their file changes. Each end stores lists that are newer than its own.
//!
//! Lists travel on a connection with a protocol (ALPN) of its own. A host that does not know the protocol, or stores
//! no lists, does not agree on it and gets none.
//!
//! | file | one idea |
//! |---|---|
//! | `crl` | a verified list: its authority and its version |
//! | `crl_store` | the lists of a host in their file |
//! | `crl_exchange` | one end of an exchange |

mod crl;
mod crl_exchange;
mod crl_store;

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hsmux_config::Identity;
use hsmux_token::{Error, Result};
use hsmux_wire::frame::Message;
use hsmux_worker::LinkOptions;
use minicbor::{Decode, Encode};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::connect::secure;
use crate::identity::{TlsIdentity, unfit};
use crate::stream::{lost, read_frame, write_message};
use crl_exchange::CrlExchange;
pub use crl_store::look_at;

/// The ALPN protocol of a connection for lists.
pub const PROTOCOL: &[u8] = b"hsmux-revoked/1";

/// The time between two looks of each end at its own lists.
const POLL_INTERVAL: Duration = Duration::from_millis(400);

/// The longest list, in bytes: tens of thousands of certificates.
const MOST: usize = 1 << 20;

/// The bytes of a frame beside the list.
const FRAMED: usize = 16;

/// The pause between two lists of one host: checking many costs more than sending them.
const LIST_PAUSE: Duration = Duration::from_millis(100);

/// The time limit of the other end for reading a list.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// The time before a connection for lists is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The same if the other end does not agree on the protocol: it needs a restart or another configuration.
const UNSUPPORTED_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The message of such a connection, in both directions.
#[derive(Encode, Decode)]
#[cbor(array)]
struct CrlMessage {
    /// A list, DER.
    #[cbor(n(0), with = "minicbor::bytes")]
    list: Vec<u8>,
}

impl Message for CrlMessage {}

/// Exchanges lists with the host of this name while the connection lasts and this host has an `identity`. `complain`
/// gets the reason when a list of the other host is not accepted, once.
pub async fn exchange(
    far: impl AsyncRead + AsyncWrite,
    name: &str,
    identity: impl Fn() -> Option<Identity>,
    complain: impl Fn(&str),
) -> Error {
    exchange_within(far, name, identity, complain, READ_WITHIN).await
}

/// [`exchange`] with this time limit for reading a list.
async fn exchange_within(
    far: impl AsyncRead + AsyncWrite,
    name: &str,
    identity: impl Fn() -> Option<Identity>,
    complain: impl Fn(&str),
    read_within: Duration,
) -> Error {
    let (mut from, mut to) = split(far);
    let (heard, mut told) = mpsc::channel(1);
    let listen = async {
        loop {
            let frame = read_frame(&mut from, MOST + FRAMED).await;
            let frame = frame.map_err(|error| lost(&error))?;
            // The receiver exists as long as this sender.
            let _ = heard.send(frame).await;
            sleep(LIST_PAUSE).await;
        }
    };
    let settle = async {
        let mut exchange = CrlExchange::new(name);
        let mut news = None;
        loop {
            let identity = identity();
            let identity = identity.ok_or_else(|| Error::lost("this host is no node any more"))?;
            if news.is_some() || !exchange.is_settled(&identity) {
                // It writes to a disk.
                let settled = spawn_blocking(move || {
                    let step = exchange.settle(&identity, news);
                    (exchange, step)
                });
                let (back, step) = settled.await.map_err(|e| Error::lost(e.to_string()))?;
                exchange = back;
                step.problem.iter().for_each(|problem| complain(problem));
                for list in step.news {
                    let list = list.der.to_vec();
                    let told =
                        timeout(read_within, write_message(&mut to, &CrlMessage { list })).await;
                    told.map_err(|_| Error::lost("does not read a list"))??;
                }
            }
            news = timeout(POLL_INTERVAL, told.recv())
                .await
                .unwrap_or_default();
        }
    };
    let ended: Result<Infallible> = tokio::select! {
        ended = listen => ended,
        ended = settle => ended,
    };
    match ended {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

/// The using side of a link: exchanges lists with the other host while the link lasts.
pub async fn keep(options: &LinkOptions, server: &ServerName<'static>) -> Infallible {
    let identity = &options.identity;
    let Some(file) = &identity.revoked else {
        return pending().await;
    };
    look_at(file);
    let name = &options.name;
    loop {
        let error = match agree(options, server).await {
            Ok(Some(far)) => {
                let complain = |problem: &str| {
                    tracing::warn!(from = name, "{NOT_TAKEN}: {problem}; {SAME_CA}");
                };
                exchange(far, name, || Some(identity.clone()), complain).await
            }
            Ok(None) => {
                tracing::debug!(
                    to = name,
                    "that host exchanges no lists of revoked certificates"
                );
                sleep(UNSUPPORTED_RETRY_AFTER).await;
                continue;
            }
            Err(error) => error,
        };
        tracing::debug!(to = name, %error, "no lists of revoked certificates for now");
        sleep(RETRY_AFTER).await;
    }
}

/// The log message for a list that is not accepted.
pub const NOT_TAKEN: &str = "a list of revoked certificates that it has is not taken";

/// The advice for it.
pub const SAME_CA: &str = "both hosts need the ca.pem of one authority";

/// A connection for lists; `None` if the other end does not agree on the protocol.
async fn agree(
    options: &LinkOptions,
    server: &ServerName<'static>,
) -> Result<Option<TlsStream<TcpStream>>> {
    let loaded = TlsIdentity::read(&options.identity)?;
    let config = loaded.client().map_err(|e| unfit(&options.identity, &e))?;
    let mut config = ClientConfig::clone(&config);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let far = secure(&options.address, &connector, server).await?;
    let agreed = far.get_ref().1.alpn_protocol().is_some();
    Ok(agreed.then_some(far))
}

#[cfg(test)]
mod tests;
