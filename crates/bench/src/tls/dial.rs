//! Connections: TCP, then the handshake, each timed; some offer an earlier session.

use std::future::{Ready, ready};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use boring::ssl::SslConnector;
use hsmux_token::{Error, Kind, Result};
use hyper::Uri;
use hyper_boring::{HttpsLayer, HttpsLayerSettings, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_boring::SslStream;
use tower_layer::Layer;
use tower_service::Service;

use super::site::Site;
use super::terms::{TlsParameters, Trust, connector, refused};
use super::{TlsOptions, exchange};

/// Opens connections to one site.
pub struct Dialer {
    /// The server's name in the handshake.
    name: String,
    trust: Trust,
    fresh: SslConnector,
    /// Offers sessions, and stores those from the server.
    resuming: HttpsLayer,
    uri: Uri,
    resume: f64,
    dialled: AtomicU64,
}

impl Dialer {
    /// By the options.
    pub fn new(site: &Site, options: &TlsOptions) -> Result<Self> {
        let name = options.name.clone().unwrap_or_else(|| site.host.clone());
        let authority = if name.contains(':') {
            format!("[{name}]:{}", site.port)
        } else {
            format!("{name}:{}", site.port)
        };
        let uri: Uri = format!("https://{authority}/").parse().map_err(|_| {
            Error::request(Kind::Invalid, format!("{name:?} is no name of a server"))
        })?;
        let mut settings = HttpsLayerSettings::builder();
        // A server issues two or more sessions per connection, each for one use.
        settings.set_session_cache_capacity(4 * options.users.max(64));
        let keeping = connector(&options.offer, &options.trust)?;
        let mut resuming = HttpsLayer::with_connector_and_settings(keeping, settings.build())
            .map_err(|e| refused(&e))?;
        if options.trust == Trust::Anybody {
            resuming.set_callback(|config, _| {
                config.set_verify_hostname(false);
                Ok(())
            });
        }
        Ok(Self {
            name,
            trust: options.trust.clone(),
            fresh: connector(&options.offer, &options.trust)?.build(),
            resuming,
            uri,
            resume: options.resume,
            dialled: AtomicU64::new(0),
        })
    }

    /// The handshake on a connection; a share of them offers a session.
    pub async fn handshake(&self, tcp: TcpStream) -> Result<SslStream<TcpStream>> {
        if self.offers() {
            let mut connector = self.resuming.layer(ConnectedStream(Some(tcp)));
            let shaken = connector.call(self.uri.clone()).await;
            return match shaken.map_err(|e| failed(&e))? {
                MaybeHttpsStream::Https(stream) => Ok(stream),
                MaybeHttpsStream::Http(_) => Err(failed(&"not encrypted")),
            };
        }
        let config = self.fresh.configure().map_err(|e| refused(&e))?;
        let config = config.verify_hostname(self.trust != Trust::Anybody);
        let shaken = tokio_boring::connect(config, &self.name, tcp).await;
        shaken.map_err(|e| failed(&e))
    }

    /// Requests the page once; returns the parameters of the handshake.
    pub fn probe(&self, site: &Site, timeout: Duration) -> Result<TlsParameters> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|e| failed(&e))?;
        runtime.block_on(async {
            let probing = async {
                let stream = self.handshake(connect(site).await?).await?;
                let seen = TlsParameters::of(stream.ssl(), &self.trust);
                exchange::get(stream, site, &site.target(), false).await?;
                Ok(seen)
            };
            let probed = tokio::time::timeout(timeout, probing).await;
            probed.unwrap_or_else(|_| Err(exchange::late(timeout)))
        })
    }

    /// Whether the next connection offers a session, evenly distributed.
    fn offers(&self) -> bool {
        let number = self.dialled.fetch_add(1, Relaxed) as f64;
        (number * self.resume).floor() < ((number + 1.0) * self.resume).floor()
    }
}

/// A connection to the site.
pub async fn connect(site: &Site) -> Result<TcpStream> {
    let connected = async {
        let tcp = TcpStream::connect(&*site.addresses).await?;
        // A request is one write, so Nagle's algorithm would only delay it.
        tcp.set_nodelay(true)?;
        io::Result::Ok(tcp)
    };
    connected
        .await
        .map_err(|e| Error::pool(Kind::Invalid, format!("not connected: {e}")))
}

fn failed(why: &dyn std::fmt::Display) -> Error {
    Error::pool(Kind::Invalid, format!("handshake: {why}"))
}

/// An existing connection, in the form that the connector needs.
struct ConnectedStream(Option<TcpStream>);

impl Service<Uri> for ConnectedStream {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<TokioIo<TcpStream>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let given = self.0.take().map(TokioIo::new);
        ready(given.ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}
