//! An answer on its way: its request is over when the client has taken it, and not before.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::connections::Running;
use super::limits::Admitted;

/// hyper asks for the next part where the client has taken what there was: what it holds is out of our sight. One
/// frame of HTTP/2 has no more by default.
const PART: usize = 16 << 10;

/// An answer's body, in parts.
pub struct Sent {
    body: Body,
    /// Of the body, and not asked for yet.
    rest: Bytes,
    running: Running,
    /// What the request may cost it costs until then.
    _admitted: Option<Arc<Admitted>>,
}

impl Sent {
    /// The answer to a request that has run until now.
    pub fn new(body: Body, mut running: Running, admitted: Option<Arc<Admitted>>) -> Self {
        running.answered();
        Self {
            body,
            rest: Bytes::new(),
            running,
            _admitted: admitted,
        }
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        this.running.moved();
        let part = this.rest.split_to(PART.min(this.rest.len()));
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
