//! An unread body at the end of its request. A short one is read and dropped, to keep the connection. After a long
//! one the answer closes the connection (RFC 9112, section 9.3).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::Request;
use axum::http::header;
use bytes::Bytes;
use hsmux_edge::access_log::Transfer;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

/// Reading no more than this costs less than a new connection.
const SHORT: u64 = 16 << 10;

/// The time for a body that came with the head of its request.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// A request's body, which can be recovered when it is dropped before its end.
pub struct RecoverableBody {
    body: Option<Incoming>,
    home: Arc<Mutex<BodyState>>,
    /// Counts its bytes for the access log.
    transfer: Option<Arc<Transfer>>,
}

/// The body as the handler has left it.
pub struct UnreadBody {
    state: Arc<Mutex<BodyState>>,
    /// The client sends it only on demand (RFC 9110, section 10.1.1).
    on_demand: bool,
}

enum BodyState {
    Away,
    Read,
    Back(Incoming),
}

/// The request with a recoverable body.
pub fn lend(
    request: Request<Incoming>,
    transfer: Option<Arc<Transfer>>,
) -> (Request<RecoverableBody>, UnreadBody) {
    let state = Arc::new(Mutex::new(BodyState::Away));
    let rest = UnreadBody {
        state: Arc::clone(&state),
        on_demand: request.headers().contains_key(header::EXPECT),
    };
    let lent = |body| RecoverableBody {
        body: Some(body),
        home: state,
        transfer,
    };
    (request.map(lent), rest)
}

impl UnreadBody {
    /// True if another request can follow: reads the body to its end if needed.
    pub async fn read_out(self) -> bool {
        let state = std::mem::replace(&mut *self.state.lock(), BodyState::Away);
        match state {
            BodyState::Read => true,
            BodyState::Back(body) if body.is_end_stream() => true,
            BodyState::Back(body) => {
                let length = body.size_hint().upper();
                let short = !self.on_demand && length.is_some_and(|length| length <= SHORT);
                short && matches!(timeout(READ_TIMEOUT, discard(body)).await, Ok(true))
            }
            BodyState::Away => false,
        }
    }
}

/// Reads and drops a body; returns whether it has reached its end.
async fn discard(mut body: Incoming) -> bool {
    loop {
        match body.frame().await {
            Some(Ok(_)) => {}
            Some(Err(_)) => return false,
            None => return true,
        }
    }
}

impl Body for RecoverableBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(transfer), Some(part)) = (&self.transfer, frame.data_ref()) {
                    transfer.add_received(part.len());
                }
            }
            Poll::Ready(None | Some(Err(_))) => self.body = None,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map(Incoming::size_hint);
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}

impl Drop for RecoverableBody {
    fn drop(&mut self) {
        *self.home.lock() = self.body.take().map_or(BodyState::Read, BodyState::Back);
    }
}
