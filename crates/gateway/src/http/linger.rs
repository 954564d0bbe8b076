//! Reads the rest of a request's body that is not needed.
//!
//! The rest is read for a while and dropped, for two reasons:
//!
//! - A client may lose the answer if a connection is closed with unread bytes (RFC 9112, section 9.6).
//! - Some clients of HTTP/2 that are still sending fail if their stream is reset right after the answer (curl 7.88).

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How long the rest is read, during and after the answer.
const LINGERS: Duration = Duration::from_secs(5);

/// Bytes that are read before the answer at most.
const MOST: usize = 1 << 20;

/// Outcome of reading a body.
pub enum DrainOutcome {
    /// All was read.
    Complete,
    /// It is malformed, or has ended too early.
    Malformed,
    /// It is too long or too slow; the rest is still to come.
    Unfinished(Incoming),
}

impl DrainOutcome {
    /// Reads a body for a while.
    pub async fn of(mut body: Incoming) -> Self {
        if body.is_end_stream() {
            return Self::Complete;
        }
        let reading = timeout(LINGERS, read(&mut body, MOST));
        match reading.await {
            Ok(Some(rest)) => rest,
            _ => Self::Unfinished(body),
        }
    }
}

/// Reads the rest of a body for a while, in a task of its own.
pub fn linger(rest: Incoming) {
    linger_holding(rest, ());
}

/// As [`linger`]; keeps `held` until then.
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

/// Reads a body. `None`: it has more than about `most` bytes.
async fn read(body: &mut Incoming, most: usize) -> Option<DrainOutcome> {
    let mut left = most;
    while left > 0 {
        match body.frame().await {
            Some(Ok(frame)) => {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            }
            Some(Err(_)) => return Some(DrainOutcome::Malformed),
            None => return Some(DrainOutcome::Complete),
        }
    }
    None
}
