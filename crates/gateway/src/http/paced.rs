//! A body whose parts count as what moves on its connection.
//!
//! HTTP/2 has no time limits of its own, and a client whose windows are closed may answer pings for ever. So
//! the connection is at rest where nothing has moved for a while and nobody waits for us.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use crate::pace::{Owed, Pace};

/// A body whose parts count: hyper asks for the next one only where the client takes it.
pub struct Paced<B> {
    body: B,
    pace: Arc<Pace>,
    owed: Option<Owed>,
}

impl<B> Paced<B> {
    pub fn new(body: B, pace: Arc<Pace>) -> Self {
        Self {
            body,
            pace,
            owed: None,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if polled.is_pending() {
            this.owed.get_or_insert_with(|| this.pace.owe());
        }
        let frame = ready!(polled);
        this.owed = None;
        this.pace.moved();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
