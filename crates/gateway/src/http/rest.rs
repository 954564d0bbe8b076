//! What is left of a request's body that nobody needs.
//!
//! A connection that is closed with something unread takes the answer back that was on its way (RFC 9112, section 9.6),
//! and over HTTP/2 a stream whose body is given up before the answer's end ends by an error. So the body is read for a
//! while, and then held without being read, which stops a client that goes on sending.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Answer;

/// How long, and how much of it, at most.
const LINGERS: Duration = Duration::from_secs(5);
const MOST: usize = 1 << 20;

/// What has become of a body that was read.
pub enum Rest {
    /// It has ended.
    Nothing,
    /// It is no body of HTTP, or ended too early.
    Malformed,
    /// It is long, or slow.
    More(Incoming),
}

/// An answer's body, and what is left of the request's until it has been sent.
struct Answering<B> {
    body: B,
    rest: Option<Incoming>,
}

impl Rest {
    /// Reads a body for a while.
    pub async fn of(body: Incoming) -> Self {
        if body.is_end_stream() {
            return Self::Nothing;
        }
        Self::read_until(body, Instant::now() + LINGERS).await
    }

    async fn read_until(mut body: Incoming, end: Instant) -> Self {
        let reading = async {
            let mut read = 0;
            while read <= MOST {
                match body.frame().await {
                    Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
                    Some(Err(_)) => return Some(Self::Malformed),
                    None => return Some(Self::Nothing),
                }
            }
            None
        };
        let read = timeout_at(end, reading).await;
        read.ok().flatten().unwrap_or(Self::More(body))
    }
}

/// Has what is left of a body read, and held for a while.
pub fn linger(rest: Incoming) {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    if rest.is_end_stream() {
        return;
    }
    runtime.spawn(async {
        let end = Instant::now() + LINGERS;
        if let Rest::More(_held) = Rest::read_until(rest, end).await {
            sleep_until(end).await;
        }
    });
}

/// An answer that does not wait for the end of the request's body.
pub fn answer_before(rest: Incoming, answer: Answer) -> Answer {
    if rest.is_end_stream() {
        return answer;
    }
    let rest = Some(rest);
    answer.map(|body| Answering { body, rest }.boxed_unsync())
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answering<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Answering<B> {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            linger(rest);
        }
    }
}
