//! A request, from its begin until its line is written.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use hyper::header::{HOST, HeaderValue, REFERER, USER_AGENT};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::{Method, Request, StatusCode, Uri, Version};

use super::{AccessLog, JsonLine};

/// Bytes of a path, once escaped.
pub const LONGEST_PATH: usize = 1024;

/// Bytes of another field of a request, once escaped.
pub const LONGEST_FIELD: usize = 512;

/// Bytes of any other text, once escaped.
pub const LONGEST_NAME: usize = 256;

/// The address of clients on a unix socket, as nginx writes it.
pub const UNIX: &str = "unix:";

/// The status if the client has left before its answer, as nginx writes it.
const CLIENT_GONE: u16 = 499;

/// What a service knows of a request.
pub trait AccessDetails {
    /// Whether the field `Referer` is logged.
    const LOGS_REFERER: bool;

    /// The client's address; `None`: a unix socket.
    fn client(&self) -> Option<SocketAddr>;

    /// The authenticated client.
    fn user(&self) -> Option<&str>;

    /// The path as it is logged, without secrets. By default it has the query. A request for CONNECT may have only an
    /// authority.
    fn path<'a>(&'a self, uri: &'a Uri) -> Cow<'a, str> {
        let path = uri.path_and_query().map(PathAndQuery::as_str);
        let authority = || uri.authority().map(Authority::as_str);
        path.or_else(authority).unwrap_or_default().into()
    }

    /// Adds fields to a JSON line.
    fn add_to(&self, line: &mut JsonLine);
}

/// A request or a tunnel. Its line is written when this is dropped.
pub struct AccessRecord<D: AccessDetails> {
    /// What the service knows.
    pub details: D,
    pub(super) begun: SystemTime,
    pub(super) head: Option<RequestHead>,
    pub(super) transfer: Arc<Transfer>,
    log: Arc<AccessLog>,
    since: Instant,
    status: Option<StatusCode>,
    is_complete: bool,
}

/// Bytes of both directions: of bodies, or of a tunnel.
#[derive(Default)]
pub struct Transfer {
    sent: AtomicU64,
    received: AtomicU64,
}

/// The parts of a request that are logged. Copies share the memory of the request.
pub(super) struct RequestHead {
    pub method: Method,
    pub uri: Uri,
    version: Version,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
}

impl<D: AccessDetails> AccessRecord<D> {
    pub(super) fn new(log: &Arc<AccessLog>, head: Option<RequestHead>, details: D) -> Self {
        Self {
            details,
            begun: SystemTime::now(),
            head,
            transfer: Arc::default(),
            log: Arc::clone(log),
            since: Instant::now(),
            status: None,
            is_complete: false,
        }
    }

    /// The client gets an answer with this status, or a tunnel.
    pub fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// The client got all of it.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    /// The time since it began.
    pub fn took(&self) -> Duration {
        self.since.elapsed()
    }

    /// The bytes so far.
    pub fn transfer(&self) -> &Arc<Transfer> {
        &self.transfer
    }

    pub(super) fn status(&self) -> u16 {
        self.status.map_or(CLIENT_GONE, |status| status.as_u16())
    }

    pub(super) fn is_aborted(&self) -> bool {
        !self.is_complete
    }
}

impl<D: AccessDetails> Drop for AccessRecord<D> {
    fn drop(&mut self) {
        let log = Arc::clone(&self.log);
        log.write(self);
    }
}

impl Transfer {
    /// The client was sent so many bytes more.
    pub fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
    }

    /// The client has sent so many bytes more.
    pub fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }
}

impl RequestHead {
    pub fn of<B>(request: &Request<B>, logs_referer: bool) -> Self {
        let field = |name| request.headers().get(name).cloned();
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            host: field(HOST),
            referer: logs_referer.then(|| field(REFERER)).flatten(),
            user_agent: field(USER_AGENT),
        }
    }

    /// The host as the client has written it.
    pub fn host(&self) -> &[u8] {
        let authority = self.uri.authority().map(Authority::as_str);
        match &self.host {
            Some(field) => field.as_bytes(),
            None => authority.unwrap_or_default().as_bytes(),
        }
    }

    pub fn protocol(&self) -> &'static str {
        match self.version {
            Version::HTTP_10 => "HTTP/1.0",
            Version::HTTP_2 => "HTTP/2.0",
            _ => "HTTP/1.1",
        }
    }

    pub fn referer(&self) -> &[u8] {
        bytes(self.referer.as_ref())
    }

    pub fn user_agent(&self) -> &[u8] {
        bytes(self.user_agent.as_ref())
    }
}

fn bytes(value: Option<&HeaderValue>) -> &[u8] {
    value.map_or(b"", HeaderValue::as_bytes)
}
