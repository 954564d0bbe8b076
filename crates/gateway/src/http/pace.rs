//! Whether a connection's client keeps it busy.
//!
//! HTTP/2 has no time limits of its own, and a client whose windows are closed may answer pings for ever. So
//! the connection is at rest where nothing has moved for a while and nobody waits for us.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::sleep;

/// What moves on a connection.
pub struct Pace {
    begin: Instant,
    /// When something has moved last, in milliseconds since the begin.
    moved: AtomicU64,
    /// Answers, or parts of them, that we have not got yet.
    owed: AtomicUsize,
}

/// As long as it is there the client waits for us.
pub struct Owed(Arc<Pace>);

impl Pace {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            begin: Instant::now(),
            moved: AtomicU64::new(0),
            owed: AtomicUsize::new(0),
        })
    }

    pub fn owe(self: &Arc<Self>) -> Owed {
        self.owed.fetch_add(1, Relaxed);
        Owed(Arc::clone(self))
    }

    pub fn moved(&self) {
        self.moved
            .store(self.begin.elapsed().as_millis() as u64, Relaxed);
    }

    /// Ends once nothing has moved for `patience`, and it was not our fault.
    pub async fn rest(&self, patience: Duration) {
        while let Some(left) = self.left(patience) {
            sleep(left).await;
        }
    }

    fn left(&self, patience: Duration) -> Option<Duration> {
        if self.owed.load(Relaxed) > 0 {
            return Some(patience);
        }
        let moved = Duration::from_millis(self.moved.load(Relaxed));
        let quiet = self.begin.elapsed().saturating_sub(moved);
        patience
            .checked_sub(quiet)
            .filter(|left| *left > Duration::ZERO)
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.moved();
        self.0.owed.fetch_sub(1, Relaxed);
    }
}

/// A body whose parts count: hyper asks for the next one only where the client takes it.
pub struct Paced<B> {
    body: B,
    pace: Arc<Pace>,
    owed: Option<Owed>,
}

impl<B> Paced<B> {
    pub fn new(body: B, pace: Arc<Pace>) -> Self {
        Self {
            body,
            pace,
            owed: None,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if polled.is_pending() {
            this.owed.get_or_insert_with(|| this.pace.owe());
        }
        let frame = ready!(polled);
        this.owed = None;
        this.pace.moved();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
