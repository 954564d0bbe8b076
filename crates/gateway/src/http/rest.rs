//! What is left of a request's body that nobody needs.
//!
//! A connection that is closed with something unread takes the answer back that was on its way (RFC 9112, section 9.6),
//! and over HTTP/2 a stream that is given up right after its answer is an error for some clients that are still sending
//! (curl 7.88). So the body is read for a while, and forgotten.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How long, beside and after the answer.
const LINGERS: Duration = Duration::from_secs(5);

/// How much of it at most comes before the answer.
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

impl Rest {
    /// Reads a body for a while.
    pub async fn of(mut body: Incoming) -> Self {
        if body.is_end_stream() {
            return Self::Nothing;
        }
        let reading = timeout(LINGERS, read(&mut body, MOST));
        match reading.await {
            Ok(Some(rest)) => rest,
            _ => Self::More(body),
        }
    }
}

/// Has what is left of a body read for a while, whatever it is.
pub fn linger(rest: Incoming) {
    linger_holding(rest, ());
}

/// The same, and holds what is held for the body until then.
pub fn linger_holding(mut rest: Incoming, held: impl Send + 'static) {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    if !rest.is_end_stream() {
        runtime.spawn(async move {
            let _held = held;
            timeout(LINGERS, read(&mut rest, usize::MAX)).await
        });
    }
}

/// Reads a body, or about so many bytes of it: `None`.
async fn read(body: &mut Incoming, most: usize) -> Option<Rest> {
    let mut left = most;
    while left > 0 {
        match body.frame().await {
            Some(Ok(frame)) => {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            }
            Some(Err(_)) => return Some(Rest::Malformed),
            None => return Some(Rest::Nothing),
        }
    }
    None
}
