//! The body of a request on its way to a backend.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The client's, or none where that had none.
///
/// A backend that answers, or ends, before it has taken all of it leaves a client behind that is still sending. What comes
/// is read for a while then, and forgotten: a connection that is closed with something unread takes the answer
/// back that was on its way (RFC 9112, section 9.6).
pub struct Asked(Option<Incoming>);

/// How long, and how much of it, at most.
const LINGERS: Duration = Duration::from_secs(5);
const MOST: usize = 1 << 20;

impl Asked {
    /// Of a request without a body.
    pub fn nothing() -> Self {
        Self(None)
    }
}

impl From<Incoming> for Asked {
    fn from(body: Incoming) -> Self {
        Self(Some(body))
    }
}

impl Body for Asked {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let body = &mut self.get_mut().0;
        let Some(rest) = body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(rest).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            *body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let nothing = SizeHint::with_exact(0);
        self.0.as_ref().map_or(nothing, Incoming::size_hint)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let rest = self.0.take().filter(|body| !body.is_end_stream());
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(timeout(LINGERS, forget(rest)));
        }
    }
}

async fn forget(mut rest: Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = rest.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > MOST {
            return;
        }
    }
}
