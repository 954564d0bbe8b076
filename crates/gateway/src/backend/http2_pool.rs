//! Connections of HTTP/2. Each has several requests under way.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http2::SendRequest;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::http1_pool::IDLE_LIMIT;
use super::request_body::RequestBody;
use super::sender::Most;

/// The connections to one server.
#[derive(Clone, Default)]
pub struct Http2Pool(Arc<PoolState>);

#[derive(Default)]
struct PoolState {
    open: Mutex<OpenConnections>,
    /// Locked while a request opens a connection. Requests that come meanwhile share it.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct OpenConnections {
    all: Vec<Http2Connection>,
    /// Whether the sweep runs.
    swept: bool,
}

struct Http2Connection {
    sender: SendRequest<RequestBody>,
    under_way: Arc<AtomicU32>,
    most: Most,
    opened: Instant,
    used: Instant,
}

/// A request's stream on a connection, until its answer has been read to its end.
pub struct StreamPermit(Arc<AtomicU32>);

/// The body of an answer.
pub struct ResponseBody {
    body: Incoming,
    _permit: Option<StreamPermit>,
}

/// Requests under way on one connection at most: what servers should allow (RFC 9113, section 6.5.2).
pub const STREAMS: u32 = 100;

impl Http2Pool {
    /// A stream on an open connection that was opened after `since`.
    pub fn take(&self, since: Option<Instant>) -> Option<(SendRequest<RequestBody>, StreamPermit)> {
        let mut open = self.0.open.lock();
        open.all.retain(|connection| !connection.sender.is_closed());
        let connection = open
            .all
            .iter_mut()
            .find(|it| Some(it.opened) >= since && it.has_room())?;
        connection.used = Instant::now();
        Some((
            connection.sender.clone(),
            StreamPermit::of(&connection.under_way),
        ))
    }

    /// Waits until no other request opens a connection. Streams on a new one can be taken then.
    pub async fn lock_opening(&self) -> impl Drop + '_ {
        self.0.opening.lock().await
    }

    /// Keeps a new connection for others, and takes the first stream on it.
    pub fn keep(&self, sender: SendRequest<RequestBody>, most: Most) -> StreamPermit {
        let under_way = Arc::default();
        let permit = StreamPermit::of(&under_way);
        let mut open = self.0.open.lock();
        if !std::mem::replace(&mut open.swept, true) {
            tokio::spawn(self.clone().sweep());
        }
        let opened = Instant::now();
        open.all.push(Http2Connection {
            sender,
            under_way,
            most,
            opened,
            used: opened,
        });
        permit
    }

    /// Gives the connection to no further request.
    pub fn forget(&self, permit: &StreamPermit) {
        let mut open = self.0.open.lock();
        let other = |connection: &Http2Connection| !Arc::ptr_eq(&connection.under_way, &permit.0);
        open.all.retain(other);
    }

    /// Closes connections that were idle for too long, until none is left.
    async fn sweep(self) {
        loop {
            sleep(IDLE_LIMIT).await;
            let mut open = self.0.open.lock();
            open.all.retain(Http2Connection::is_wanted);
            if open.all.is_empty() {
                open.swept = false;
                return;
            }
        }
    }
}

impl Http2Connection {
    fn has_room(&self) -> bool {
        self.under_way.load(Relaxed) < (self.most)()
    }

    fn is_wanted(&self) -> bool {
        let used = self.under_way.load(Relaxed) > 0 || self.used.elapsed() < IDLE_LIMIT;
        used && !self.sender.is_closed()
    }
}

impl StreamPermit {
    fn of(under_way: &Arc<AtomicU32>) -> Self {
        under_way.fetch_add(1, Relaxed);
        Self(Arc::clone(under_way))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl ResponseBody {
    pub fn new(body: Incoming, permit: Option<StreamPermit>) -> Self {
        Self {
            body,
            _permit: permit,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
