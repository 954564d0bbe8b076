//! A body whose parts count as what moves on its connection, and as what it holds of the memory.
//!
//! HTTP/2 has no time limits of its own, and a client whose windows are closed may answer pings for ever. So
//! the connection is at rest where nothing has moved for a while and nobody waits for us.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use super::PART;
use crate::backend::WINDOW;
use crate::memory::{Account, Admission, Charge};
use crate::pace::{Owed, Pace};

/// A body whose parts count. hyper asks for the next part before it knows whether the client takes it.
pub struct Paced<B> {
    body: B,
    pace: Arc<Pace>,
    owed: Option<Owed>,
    account: Arc<Account>,
    /// What has been read ahead of us, if anything has.
    ahead: Option<Charge>,
    reads: ReadAhead,
    is_http2: bool,
    _request: Option<Admission>,
}

/// How much may have been read ahead of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReadAhead {
    /// As much as was read last: a back end of HTTP/1.1.
    Last,
    /// As much as a back end of HTTP/2 may send.
    Window,
    /// One part of a file, also while it is being read.
    Part,
}

/// What is known of the request that a body answers.
pub struct BodyContext {
    pub pace: Arc<Pace>,
    pub account: Arc<Account>,
    pub request: Option<Admission>,
    pub ahead: Option<Charge>,
    pub reads: ReadAhead,
    pub is_http2: bool,
}

impl<B> Paced<B> {
    pub fn new(body: B, of: BodyContext) -> Self {
        Self {
            body,
            pace: of.pace,
            owed: None,
            account: of.account,
            ahead: of.ahead,
            reads: of.reads,
            is_http2: of.is_http2,
            _request: of.request,
        }
    }

    /// A part that has been read, and as much as may have been read behind it.
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

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if this.account.poll_ready(context).is_pending() {
            this.owed.get_or_insert_with(|| this.pace.owe());
            return Poll::Pending;
        }
        if this.reads == ReadAhead::Part {
            this.ahead.get_or_insert_with(|| this.account.charge(PART));
        }
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if polled.is_pending() {
            this.owed.get_or_insert_with(|| this.pace.owe());
            if this.reads != ReadAhead::Part {
                this.ahead = None;
            }
        }
        let frame = ready!(polled);
        this.owed = None;
        this.pace.moved();
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
