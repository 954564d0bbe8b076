//! The body of a request on its way to a backend.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::http::{linger_holding, remove_ours};
use crate::memory::Admission;

use super::upload_queue::UploadQueue;

/// The client's, or none where that had none.
///
/// A backend that answers, or ends, before it has taken all of it leaves a client behind that is still sending. What comes
/// is read for a while then, and forgotten ([`linger`]).
pub struct Asked {
    body: Option<Incoming>,
    outcome: Outcome,
    /// What the server has yet to take.
    queue: Arc<UploadQueue>,
    /// What is held for what the client may send ahead.
    held: Option<Admission>,
}

/// What has become of a client's body; `None`: it had none.
#[derive(Clone, Default)]
pub struct Outcome(Option<Arc<AtomicBool>>);

impl Asked {
    /// Of a request without a body.
    pub fn nothing() -> Self {
        Self {
            body: None,
            outcome: Outcome::default(),
            queue: UploadQueue::new(0),
            held: None,
        }
    }

    /// Of a request with this body, of which so many bytes may wait for the server, and what is held for them.
    pub fn new(body: Incoming, most: usize, held: Option<Admission>) -> Self {
        let outcome = Outcome((!body.is_end_stream()).then(Arc::default));
        Self {
            body: Some(body),
            outcome,
            queue: UploadQueue::new(most),
            held,
        }
    }

    /// To ask later what has become of it.
    pub fn outcome(&self) -> Outcome {
        self.outcome.clone()
    }
}

impl Outcome {
    /// Whether it was malformed, or ended too early.
    pub fn has_failed(&self) -> bool {
        let failed = self.0.as_ref();
        failed.is_some_and(|failed| failed.load(Relaxed))
    }
}

impl Body for Asked {
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

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(rest) = self.body.take() {
            linger_holding(rest, self.held.take());
        }
    }
}
