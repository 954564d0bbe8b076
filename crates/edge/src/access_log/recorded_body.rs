//! The body of an answer. The end of the body is the end of its request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::CONTENT_LENGTH;

use super::record::{AccessDetails, AccessRecord};

/// A body whose bytes are counted for its request.
pub struct RecordedBody<B: Body, D: AccessDetails> {
    body: B,
    record: Option<AccessRecord<D>>,
    /// `None`: its length is not known.
    left: Option<u64>,
}

impl<B: Body, D: AccessDetails> RecordedBody<B, D> {
    /// The answer to this request.
    pub fn answer(answer: Response<B>, mut record: Option<AccessRecord<D>>) -> Response<Self> {
        let mut length = None;
        if let Some(record) = &mut record {
            record.answered(answer.status());
            let field = answer.headers().get(CONTENT_LENGTH);
            length = field.and_then(|value| value.to_str().ok()?.parse().ok());
        }
        answer.map(|body| Self {
            left: body.size_hint().exact().or(length),
            body,
            record,
        })
    }
}

impl<B: Body + Unpin, D: AccessDetails + Unpin> Body for RecordedBody<B, D> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let Some(record) = &mut this.record {
            match &frame {
                Some(Ok(frame)) => {
                    let bytes = frame.data_ref().map_or(0, Buf::remaining);
                    record.transfer().add_sent(bytes);
                    this.left = this.left.map(|left| left.saturating_sub(bytes as u64));
                    if frame.is_trailers() {
                        record.complete();
                    }
                }
                Some(Err(_)) => this.record = None,
                None => record.complete(),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: Body, D: AccessDetails> Drop for RecordedBody<B, D> {
    /// hyper does not ask for the end of a body that has its whole length.
    fn drop(&mut self) {
        if let Some(record) = &mut self.record
            && (self.left == Some(0) || self.body.is_end_stream())
        {
            record.complete();
        }
    }
}
