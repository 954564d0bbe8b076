//! Connections of HTTP/2, on each of which several requests are under way.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http2::SendRequest;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::idle::PATIENCE;

/// Those of one server.
#[derive(Clone, Default)]
pub struct Shared(Arc<Kept>);

#[derive(Default)]
struct Kept {
    all: Mutex<Vec<Connection>>,
    /// Who opens the next one: those who come meanwhile go on it, too.
    opening: tokio::sync::Mutex<()>,
}

struct Connection {
    sender: SendRequest<Incoming>,
    under_way: Arc<AtomicU32>,
    used: Instant,
}

/// A request's place on a connection, until its answer has been read to its end.
pub struct Share(Arc<AtomicU32>);

/// The body of an answer.
pub struct Answered {
    body: Incoming,
    _share: Option<Share>,
}

/// Requests under way on one connection: what servers allow at least (RFC 9113, section 6.5.2).
pub const STREAMS: u32 = 100;

impl Shared {
    /// A place on a connection that is there.
    pub fn take(&self) -> Option<(SendRequest<Incoming>, Share)> {
        let mut all = self.0.all.lock();
        all.retain(|connection| !connection.sender.is_closed());
        let free = |connection: &&mut Connection| connection.under_way.load(Relaxed) < STREAMS;
        let connection = all.iter_mut().find(free)?;
        connection.used = Instant::now();
        Some((connection.sender.clone(), Share::of(&connection.under_way)))
    }

    /// Waits until nobody opens another connection. Places on that one can be taken then.
    pub async fn turn(&self) -> impl Drop + '_ {
        self.0.opening.lock().await
    }

    /// Keeps a new connection for others, and has the first place on it.
    pub fn keep(&self, sender: SendRequest<Incoming>) -> Share {
        let under_way = Arc::default();
        let share = Share::of(&under_way);
        let mut all = self.0.all.lock();
        if all.is_empty() {
            tokio::spawn(self.clone().sweep());
        }
        all.push(Connection {
            sender,
            under_way,
            used: Instant::now(),
        });
        share
    }

    /// Ends when none is left.
    async fn sweep(self) {
        loop {
            sleep(PATIENCE).await;
            let mut all = self.0.all.lock();
            all.retain(Connection::is_wanted);
            if all.is_empty() {
                return;
            }
        }
    }
}

impl Connection {
    fn is_wanted(&self) -> bool {
        let used = self.under_way.load(Relaxed) > 0 || self.used.elapsed() < PATIENCE;
        used && !self.sender.is_closed()
    }
}

impl Share {
    fn of(under_way: &Arc<AtomicU32>) -> Self {
        under_way.fetch_add(1, Relaxed);
        Self(Arc::clone(under_way))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Answered {
    pub fn new(body: Incoming, share: Option<Share>) -> Self {
        Self {
            body,
            _share: share,
        }
    }
}

impl Body for Answered {
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
