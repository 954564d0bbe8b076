//! The body of an answer. Its parts restart the idle timer and are charged to the memory budget.
//!
//! hyper has no idle limit for HTTP/2, and a client with closed windows may answer pings for ever. So a connection is
//! idle if no part of a body has passed for a while and the client waits for nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use super::PART;
use crate::backend::WINDOW;
use crate::idle_timer::{IdleTimer, PendingWork};
use crate::memory::{Admission, Charge, MemoryAccount};

/// A body whose parts are counted. hyper asks for the next part before it knows whether the client takes it.
pub struct TrackedBody<B> {
    body: B,
    idle_timer: Arc<IdleTimer>,
    pending: Option<PendingWork>,
    account: Arc<MemoryAccount>,
    /// Memory for what may have been read ahead.
    ahead: Option<Charge>,
    reads: ReadAhead,
    is_http2: bool,
    _request: Option<Admission>,
}

/// How much may have been read ahead of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReadAhead {
    /// As much as was read last, for a back end of HTTP/1.1.
    Last,
    /// A window, for a back end of HTTP/2.
    Window,
    /// One part, for a file; also while it is being read.
    Part,
}

/// The request that a body answers.
pub struct BodyContext {
    pub idle_timer: Arc<IdleTimer>,
    pub account: Arc<MemoryAccount>,
    pub request: Option<Admission>,
    pub ahead: Option<Charge>,
    pub reads: ReadAhead,
    pub is_http2: bool,
}

impl<B> TrackedBody<B> {
    pub fn new(body: B, of: BodyContext) -> Self {
        Self {
            body,
            idle_timer: of.idle_timer,
            pending: None,
            account: of.account,
            ahead: of.ahead,
            reads: of.reads,
            is_http2: of.is_http2,
            _request: of.request,
        }
    }

    /// Charges a part, and what may have been read ahead of it.
    fn hold(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        frame.map_data(|bytes| {
            let ahead = match self.reads {
                ReadAhead::Last => bytes.len(),
                ReadAhead::Window => WINDOW as usize,
                ReadAhead::Part => PART,
            };
            self.ahead = Some(self.account.charge(ahead));
            if self.is_http2 {
                return self.account.hold(bytes);
            }
            self.account.hold_until_flushed(bytes.len());
            bytes
        })
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if this.account.poll_ready(context).is_pending() {
            this.pending
                .get_or_insert_with(|| this.idle_timer.begin_work());
            return Poll::Pending;
        }
        if this.reads == ReadAhead::Part {
            this.ahead.get_or_insert_with(|| this.account.charge(PART));
        }
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if polled.is_pending() {
            this.pending
                .get_or_insert_with(|| this.idle_timer.begin_work());
            if this.reads != ReadAhead::Part {
                this.ahead = None;
            }
        }
        let frame = ready!(polled);
        this.pending = None;
        this.idle_timer.touch();
        let frame = frame.map(|read| read.map(|frame| this.hold(frame)));
        if this.body.is_end_stream() || frame.is_none() {
            this.ahead = None;
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
