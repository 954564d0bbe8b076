//! Time-outs of a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hsmux_config::Limits;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::connections::ConnectionActivity;

/// A stream that ends for its reader when the client takes too long: for the head of a request, for the next request,
/// or for reading an answer. The time of a body has a limit of its own, in the request.
///
/// The limit holds for every protocol from the first byte on. hyper's own time-out begins only when the protocol is
/// known, and does not tell half a head from none.
pub struct TimeoutStream<S> {
    stream: S,
    activity: Arc<ConnectionActivity>,
    /// For a head, and for reading an answer.
    read: Duration,
    idle: Duration,
    /// The time of a head's first byte, and the number of requests before it.
    head: Option<(Instant, usize)>,
    /// Since when nothing could be written.
    stuck: Option<Instant>,
    /// The end of the time in which input is still read after the last answer.
    linger: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

/// A client that still writes when its connection is closed may lose the answer (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_millis(500);

impl<S> TimeoutStream<S> {
    pub fn new(stream: S, activity: Arc<ConnectionActivity>, limits: &Limits) -> Self {
        let soon = Instant::now() + limits.read_timeout.min(limits.idle_timeout);
        Self {
            stream,
            activity,
            read: limits.read_timeout,
            idle: limits.idle_timeout,
            head: None,
            stuck: None,
            linger: None,
            timer: Box::pin(sleep_until(soon)),
        }
    }

    /// The time at which the client is too late; `None` while it waits for us.
    fn due(&mut self) -> Option<Instant> {
        if !self.activity.is_quiet() {
            self.head = None;
            // A client of HTTP/2 may leave room for bytes but none for its answer. Bytes that reached the socket have
            // a limit where they are written.
            let taking = !self.activity.is_owed() && self.stuck.is_none();
            return taking.then(|| Instant::from_std(self.activity.quiet_since()) + self.read);
        }
        self.head = self
            .head
            .filter(|(_, requests)| *requests == self.activity.requests());
        Some(match self.head {
            Some((since, _)) => since + self.read,
            None => Instant::from_std(self.activity.quiet_since()) + self.idle,
        })
    }

    /// True if that moment has come. A timer for an earlier moment stays, to save a reset for each request.
    fn is_over(&mut self, due: Instant, cx: &mut Context<'_>) -> bool {
        while Instant::now() < due {
            if self.timer.is_elapsed() || self.timer.deadline() > due {
                self.timer.as_mut().reset(due);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return false;
            }
        }
        true
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            if buf.filled().len() > before && self.head.is_none() && self.activity.is_quiet() {
                self.head = Some((Instant::now(), self.activity.requests()));
            }
            return read;
        }
        match self.due() {
            // The same result as if the client had closed it.
            Some(due) if self.is_over(due, cx) => return Poll::Ready(Ok(())),
            Some(_) => {}
            // hyper does not read again at the end of the request: the timer has to be set by then.
            None => {
                let later = Instant::now() + self.idle;
                self.is_over(later, cx);
            }
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.unless_stuck(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.unless_stuck(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.unless_stuck(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.unless_stuck(ended, cx))?;
        }
        let until = *self.linger.get_or_insert_with(|| Instant::now() + LINGER);
        let mut rest = [0; 4096];
        while Instant::now() < until {
            let mut rest = ReadBuf::new(&mut rest);
            match Pin::new(&mut self.stream).poll_read(cx, &mut rest) {
                Poll::Ready(Ok(())) if !rest.filled().is_empty() => {}
                Poll::Ready(_) => break,
                Poll::Pending if self.is_over(until, cx) => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> TimeoutStream<S> {
    fn unless_stuck<T>(
        &mut self,
        done: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            if self.stuck.take().is_some() {
                self.activity.stuck(false);
            }
            return done;
        }
        let since = *self.stuck.get_or_insert_with(|| {
            self.activity.stuck(true);
            Instant::now()
        });
        if self.is_over(since + self.read, cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}
