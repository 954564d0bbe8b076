//! A request, from its begin until its line is written.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use hyper::header::{HOST, HeaderValue, REFERER, USER_AGENT};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::{Request, StatusCode, Version};

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

    /// The path as it is logged, without secrets. By default it is the client's, with the query.
    fn path(&self) -> Option<Cow<'_, str>> {
        None
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

/// The parts of a request that are logged: short copies. A clone of a header would keep the whole head in memory until
/// the client has taken its answer.
pub(super) struct RequestHead {
    pub method: Vec<u8>,
    /// The path with the query. A request for CONNECT may have only an authority.
    pub path: Vec<u8>,
    pub protocol: &'static str,
    /// As the client has written it.
    pub host: Vec<u8>,
    pub referer: Vec<u8>,
    pub user_agent: Vec<u8>,
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
        let uri = request.uri();
        let path = uri.path_and_query().map(PathAndQuery::as_str);
        let authority = uri.authority().map(Authority::as_str);
        let field = |name| request.headers().get(name).map(HeaderValue::as_bytes);
        let referer = field(REFERER).filter(|_| logs_referer);
        let host = field(HOST).or(authority.map(str::as_bytes));
        let path = path.or(authority).map(str::as_bytes);
        Self {
            method: cut(Some(request.method().as_str().as_bytes()), LONGEST_NAME),
            path: cut(path, LONGEST_PATH),
            protocol: match request.version() {
                Version::HTTP_10 => "HTTP/1.0",
                Version::HTTP_2 => "HTTP/2.0",
                _ => "HTTP/1.1",
            },
            host: cut(host, LONGEST_FIELD),
            referer: cut(referer, LONGEST_FIELD),
            user_agent: cut(field(USER_AGENT), LONGEST_FIELD),
        }
    }
}

/// A copy of at most `most` bytes, and one more that shows that there were others.
fn cut(value: Option<&[u8]>, most: usize) -> Vec<u8> {
    let value = value.unwrap_or_default();
    value[..value.len().min(most + 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_head_there_are_short_copies() {
        let long = "x".repeat(1 << 16);
        let request = Request::builder()
            .method(long.as_str())
            .uri(format!("/{}", &long[..1 << 15]))
            .header(HOST, &long)
            .header(REFERER, &long)
            .header(USER_AGENT, &long)
            .body(())
            .unwrap();
        let head = RequestHead::of(&request, true);
        assert_eq!(head.method.len(), LONGEST_NAME + 1);
        assert_eq!(head.path.len(), LONGEST_PATH + 1);
        for field in [head.host, head.referer, head.user_agent] {
            assert_eq!(field.len(), LONGEST_FIELD + 1);
        }
    }
}
