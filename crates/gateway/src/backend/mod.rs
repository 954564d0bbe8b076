//! The servers behind a site.
//!
//! | file | one idea |
//! |---|---|
//! | `check` | asking a server whether it is well |
//! | `exchange` | a request and its answer |
//! | `health` | whether a server does its work |
//! | `idle` | connections of HTTP/1.1 that wait for the next request |
//! | `line` | a connection, and the file that it holds |
//! | `sender` | a connection that takes requests |
//! | `shared` | connections of HTTP/2, and the requests under way on each |
//! | `tls` | whose certificate a server has to show |
//! | `upload_queue` | parts of a request's body that a server has yet to take |

mod asked;
mod check;
mod exchange;
mod health;
mod idle;
mod line;
mod sender;
mod shared;
mod tls;
mod upload_queue;

pub use asked::Asked;
pub use exchange::Failure;
pub use line::Line;
pub use sender::WINDOW;
pub use shared::Answered;

use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use boring::ssl::SslConnector;
use hsmux_config::{Behind, Site};
use hsmux_state::FileVersions;
use hsmux_token::Result;
use hyper::Uri;
use hyper::header::HeaderValue;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::certificate::wrong;
use crate::files::{Files, Held};
use health::Health;
use idle::Idle;
use shared::Shared;

/// All of a site.
pub struct Backends {
    all: Vec<Backend>,
    /// Whose it is.
    turn: AtomicUsize,
    /// Somebody checks them.
    asked: AtomicBool,
    behind: Behind,
    roots: FileVersions,
}

/// A server.
pub struct Backend {
    url: hsmux_config::Backend,
    /// Where it is.
    uri: Uri,
    /// The host of requests that name none.
    host: HeaderValue,
    tcp: HttpConnector,
    /// `None`: in clear.
    tls: Option<SslConnector>,
    idle: Idle,
    /// Of one that speaks HTTP/2.
    shared: Option<Shared>,
    health: Health,
}

/// Why there is no connection.
pub enum Unreached {
    /// The process may have no more files.
    NoFile,
    /// The server takes none, which has been told.
    Down,
}

/// A server that is there takes a connection at once.
const CONNECT: Duration = Duration::from_secs(5);

impl Backends {
    /// Those of a site. None is connected yet.
    pub fn of(site: &Site) -> Result<Self> {
        let roots = FileVersions::of(site.behind.roots());
        let each = site.behind.backends().iter();
        let all = each.map(|url| Backend::new(url, &site.behind));
        Ok(Self {
            all: all.collect::<Result<_>>()?,
            turn: AtomicUsize::new(0),
            asked: AtomicBool::new(false),
            behind: site.behind.clone(),
            roots,
        })
    }

    /// Whether they are a site's as it is now.
    pub fn are_of(&self, site: &Site) -> bool {
        self.behind == site.behind && self.roots == FileVersions::of(site.behind.roots())
    }

    /// Who may take the next request: whoever's turn it is of those that are well, then the others of them. Where
    /// none of them has taken it, those that were left out until now, too.
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
        // What is passed over makes nobody's turn longer.
        self.turn.fetch_add(by, Relaxed);
        Some(ahead(by))
    }

    /// Each by its URL, and whether it is well.
    pub fn each(&self) -> impl Iterator<Item = (&hsmux_config::Backend, bool)> {
        let each = self.all.iter();
        each.map(|backend| (&backend.url, backend.health.is_well()))
    }
}

impl Backend {
    fn new(url: &hsmux_config::Backend, behind: &Behind) -> Result<Self> {
        let authority = url.authority();
        let http2 = url.scheme.is_http2();
        let connector = || tls::connector(behind.roots(), http2);
        let tls = url.scheme.is_tls().then(connector).transpose()?;
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_nodelay(true);
        // Where none is asked for anything a server that is gone is noticed so.
        tcp.set_keepalive(http2.then_some(CONNECT));
        Ok(Self {
            // Whatever it speaks, the connection below is one of TCP.
            uri: format!("http://{authority}")
                .parse()
                .map_err(|e| wrong(url, e))?,
            host: authority.parse().map_err(|e| wrong(url, e))?,
            url: url.clone(),
            tcp,
            tls,
            idle: Idle::default(),
            shared: http2.then(Shared::default),
            health: Health::new(behind.check().is_some()),
        })
    }

    /// A new connection as it is.
    pub async fn connect(&self, patience: Duration, files: &Files) -> Result<Line, Unreached> {
        let line = self.reach(patience, files, |file| self.dial(file)).await?;
        self.health.answered(&self.url);
        Ok(line)
    }

    async fn dial(&self, file: Held) -> Result<Line, String> {
        let dialled = self.tcp.clone().oneshot(self.uri.clone()).await;
        let stream = dialled.map_err(|e| format!("it takes no connection: {}", reasons(&e)))?;
        Ok(Line {
            stream: stream.into_inner(),
            _file: file,
        })
    }

    /// Something new to be had from it, in time.
    async fn reach<T, F>(
        &self,
        patience: Duration,
        files: &Files,
        open: impl FnOnce(Held) -> F,
    ) -> Result<T, Unreached>
    where
        F: Future<Output = Result<T, String>>,
    {
        let patience = patience.min(CONNECT);
        let file = files.behind_within(patience).await;
        let opened = timeout(patience, open(file.ok_or(Unreached::NoFile)?)).await;
        let late = |_| Err(format!("it takes no connection within {patience:?}"));
        opened.unwrap_or_else(late).map_err(|why| {
            self.health.failed(&self.url, &why);
            Unreached::Down
        })
    }
}

/// An error and what has led to it.
fn reasons(error: &(dyn StdError + 'static)) -> String {
    let all = std::iter::successors(Some(error), |error| (*error).source());
    let all: Vec<_> = all.map(ToString::to_string).collect();
    all.join(": ")
}
