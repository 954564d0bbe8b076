//! The servers behind a site.
//!
//! | file | one idea |
//! |---|---|
//! | `check` | health checks |
//! | `exchange` | a request and its answer |
//! | `health` | health of a server |
//! | `http1_pool` | idle connections of HTTP/1.1 |
//! | `http2_pool` | connections of HTTP/2, and the requests under way on each |
//! | `request_body` | the body of a request |
//! | `sender` | a connection that takes requests |
//! | `stream` | a TCP connection, and the file that it holds |
//! | `tls` | TLS to a server |
//! | `upload_queue` | parts of a request's body that a server has yet to take |

mod check;
mod exchange;
mod health;
mod http1_pool;
mod http2_pool;
mod request_body;
mod sender;
mod stream;
mod tls;
mod upload_queue;

pub use exchange::ExchangeError;
pub use http2_pool::ResponseBody;
pub use request_body::RequestBody;
pub use sender::WINDOW;
pub use stream::BackendStream;

use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use boring::ssl::SslConnector;
use hsmux_config::{Site, SiteBackends};
use hsmux_state::FileVersions;
use hsmux_token::Result;
use hyper::Uri;
use hyper::header::HeaderValue;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::certificate::wrong;
use crate::file_budget::{FileBudget, FilePermit};
use health::Health;
use http1_pool::Http1Pool;
use http2_pool::Http2Pool;

/// All servers of a site.
pub struct Backends {
    all: Vec<Backend>,
    /// Counts requests; it selects the server that comes next.
    turn: AtomicUsize,
    /// Whether the checks run.
    checks_run: AtomicBool,
    configured: SiteBackends,
    roots: FileVersions,
}

/// A server.
pub struct Backend {
    url: hsmux_config::BackendUrl,
    /// Its address.
    uri: Uri,
    /// The host of requests that name none.
    host: HeaderValue,
    tcp: HttpConnector,
    /// `None`: plain TCP.
    tls: Option<SslConnector>,
    http1: Http1Pool,
    /// Connections, if the server speaks HTTP/2.
    http2: Option<Http2Pool>,
    health: Health,
}

/// Why there is no connection.
pub enum ConnectError {
    /// The process may have no more files.
    NoFile,
    /// The server takes none. That was logged.
    Down,
}

/// Time limit for connecting: a server that works takes a connection at once.
const CONNECT: Duration = Duration::from_secs(5);

impl Backends {
    /// The servers of a site, not yet connected.
    pub fn of(site: &Site) -> Result<Self> {
        let roots = FileVersions::of(site.backends.roots());
        let each = site.backends.urls().iter();
        let all = each.map(|url| Backend::new(url, &site.backends));
        Ok(Self {
            all: all.collect::<Result<_>>()?,
            turn: AtomicUsize::new(0),
            checks_run: AtomicBool::new(false),
            configured: site.backends.clone(),
            roots,
        })
    }

    /// Whether they still match the configuration of a site.
    pub fn are_of(&self, site: &Site) -> bool {
        self.configured == site.backends && self.roots == FileVersions::of(site.backends.roots())
    }

    /// The servers to try for one request, in this order: healthy servers in turn, then those that are left out.
    pub fn in_turn(&self) -> impl Iterator<Item = &Backend> {
        let since = Instant::now();
        self.all.iter().map_while(move |_| self.next(since))
    }

    fn next(&self, since: Instant) -> Option<&Backend> {
        let (first, count) = (self.turn.fetch_add(1, Relaxed), self.all.len());
        let ahead = |by| &self.all[first.wrapping_add(by) % count];
        let due = (0..count).find(|by| ahead(*by).health.is_due());
        let left = || (0..count).find(|by| ahead(*by).health.may_be_well(since));
        let by = due.or_else(left)?;
        // Servers that were passed over do not give the next one more turns.
        self.turn.fetch_add(by, Relaxed);
        Some(ahead(by))
    }

    /// The URL of each server, and whether it is well.
    pub fn each(&self) -> impl Iterator<Item = (&hsmux_config::BackendUrl, bool)> {
        let each = self.all.iter();
        each.map(|backend| (&backend.url, backend.health.is_well()))
    }
}

impl Backend {
    fn new(url: &hsmux_config::BackendUrl, configured: &SiteBackends) -> Result<Self> {
        let authority = url.authority();
        let http2 = url.scheme.is_http2();
        let connector = || tls::connector(configured.roots(), http2);
        let tls = url.scheme.is_tls().then(connector).transpose()?;
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_nodelay(true);
        // Finds a server that has gone while no request is under way.
        tcp.set_keepalive(http2.then_some(CONNECT));
        Ok(Self {
            // Only for connecting by TCP, whatever the protocol above.
            uri: format!("http://{authority}")
                .parse()
                .map_err(|e| wrong(url, e))?,
            host: authority.parse().map_err(|e| wrong(url, e))?,
            url: url.clone(),
            tcp,
            tls,
            http1: Http1Pool::default(),
            http2: http2.then(Http2Pool::default),
            health: Health::new(configured.check().is_some()),
        })
    }

    /// Its URL.
    pub fn url(&self) -> &hsmux_config::BackendUrl {
        &self.url
    }

    /// Opens a new connection for any protocol.
    pub async fn connect(
        &self,
        patience: Duration,
        files: &FileBudget,
    ) -> Result<BackendStream, ConnectError> {
        let stream = self.reach(patience, files, |file| self.dial(file)).await?;
        self.health.answered(&self.url);
        Ok(stream)
    }

    async fn dial(&self, file: FilePermit) -> Result<BackendStream, String> {
        let dialled = self.tcp.clone().oneshot(self.uri.clone()).await;
        let stream = dialled.map_err(|e| format!("it takes no connection: {}", reasons(&e)))?;
        Ok(BackendStream {
            stream: stream.into_inner(),
            _file: file,
        })
    }

    /// Opens something new to the server, within a time limit.
    async fn reach<T, F>(
        &self,
        patience: Duration,
        files: &FileBudget,
        open: impl FnOnce(FilePermit) -> F,
    ) -> Result<T, ConnectError>
    where
        F: Future<Output = Result<T, String>>,
    {
        let patience = patience.min(CONNECT);
        let file = files.wait_for_backend(patience).await;
        let opened = timeout(patience, open(file.ok_or(ConnectError::NoFile)?)).await;
        let late = |_| Err(format!("it takes no connection within {patience:?}"));
        opened.unwrap_or_else(late).map_err(|why| {
            self.health.failed(&self.url, &why);
            ConnectError::Down
        })
    }
}

/// An error and its causes.
fn reasons(error: &(dyn StdError + 'static)) -> String {
    let all = std::iter::successors(Some(error), |error| (*error).source());
    let all: Vec<_> = all.map(ToString::to_string).collect();
    all.join(": ")
}
