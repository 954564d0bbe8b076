//! The body of a request on its way to a backend.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hsmux_edge::access_log::Transfer;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::http::{linger_holding, remove_ours};
use crate::memory::Admission;

use super::upload_queue::UploadQueue;

/// A client's body, or none.
///
/// If the backend answers or ends before it has taken all of the body, the client is still sending. The rest is then
/// read for a while and dropped ([`linger_holding`]).
pub struct RequestBody {
    body: Option<Incoming>,
    outcome: BodyOutcome,
    /// Parts that the server has not taken yet.
    queue: Arc<UploadQueue>,
    /// Memory for what the client may send ahead.
    memory: Option<Admission>,
    /// Counts its bytes for the access log.
    transfer: Option<Arc<Transfer>>,
}

/// Tells later whether a client's body has failed. `None`: there was no body.
#[derive(Clone, Default)]
pub struct BodyOutcome(Option<Arc<AtomicBool>>);

impl RequestBody {
    /// The body of a request without one.
    pub fn empty() -> Self {
        Self {
            body: None,
            outcome: BodyOutcome::default(),
            queue: UploadQueue::new(0),
            memory: None,
            transfer: None,
        }
    }

    /// A client's body. At most `most` bytes wait for the server, and `memory` is the memory for them.
    pub fn new(body: Incoming, most: usize, memory: Option<Admission>) -> Self {
        let outcome = BodyOutcome((!body.is_end_stream()).then(Arc::default));
        Self {
            body: Some(body),
            outcome,
            queue: UploadQueue::new(most),
            memory,
            transfer: None,
        }
    }

    /// Counts its bytes there.
    pub fn count(&mut self, transfer: &Arc<Transfer>) {
        self.transfer = Some(Arc::clone(transfer));
    }

    /// A handle that tells later whether the body has failed.
    pub fn outcome(&self) -> BodyOutcome {
        self.outcome.clone()
    }
}

impl BodyOutcome {
    /// Whether it was malformed, or ended too early.
    pub fn has_failed(&self) -> bool {
        let failed = self.0.as_ref();
        failed.is_some_and(|failed| failed.load(Relaxed))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(rest) = &mut this.body else {
            return Poll::Ready(None);
        };
        ready!(this.queue.poll_ready(context));
        let mut frame = ready!(Pin::new(rest).poll_frame(context));
        match &mut frame {
            Some(Ok(frame)) => {
                if let (Some(transfer), Some(part)) = (&this.transfer, frame.data_ref()) {
                    transfer.add_received(part.len());
                }
                if let Some(trailers) = frame.trailers_mut() {
                    remove_ours(trailers);
                }
            }
            ended => {
                if let (Some(Err(_)), Some(failed)) = (ended, &this.outcome.0) {
                    failed.store(true, Relaxed);
                }
                this.body = None;
            }
        }
        let queue = &this.queue;
        Poll::Ready(frame.map(|read| read.map(|frame| frame.map_data(|part| queue.hold(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let nothing = SizeHint::with_exact(0);
        self.body.as_ref().map_or(nothing, Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(rest) = self.body.take() {
            linger_holding(rest, self.memory.take());
        }
    }
}
