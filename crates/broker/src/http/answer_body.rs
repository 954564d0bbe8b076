//! The body of an answer. Its request ends when the client has taken it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};

use super::connections::RunningRequest;
use super::limits::AdmittedRequest;

/// hyper asks for the next part when the client has taken the last one. One frame of HTTP/2 has no more by default.
const PART: usize = 16 << 10;

/// An answer's body, in parts.
pub struct AnswerBody {
    body: Body,
    /// The rest of the current part.
    rest: Bytes,
    request: Arc<UnfinishedRequest>,
}

/// A request whose answer the client has not taken. Until then it counts for its client, with its memory.
struct UnfinishedRequest {
    running: RunningRequest,
    _admitted: Option<Arc<AdmittedRequest>>,
}

/// A part of an answer, which hyper holds until it is written to the connection.
pub struct AnswerPart {
    bytes: Bytes,
    _request: Arc<UnfinishedRequest>,
}

impl AnswerBody {
    /// The answer to a request that has run so far.
    pub fn new(
        body: Body,
        mut running: RunningRequest,
        admitted: Option<Arc<AdmittedRequest>>,
    ) -> Self {
        running.answered();
        Self {
            body,
            rest: Bytes::new(),
            request: Arc::new(UnfinishedRequest {
                running,
                _admitted: admitted,
            }),
        }
    }
}

impl HttpBody for AnswerBody {
    type Data = AnswerPart;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<AnswerPart>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(other) => {
                    let trailers = other.into_trailers().ok().map(Frame::trailers);
                    return Poll::Ready(trailers.map(Ok));
                }
            }
        }
        this.request.running.moved();
        let part = AnswerPart {
            bytes: this.rest.split_to(PART.min(this.rest.len())),
            _request: Arc::clone(&this.request),
        };
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl Buf for AnswerPart {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
