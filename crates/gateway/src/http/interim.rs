//! Interim answers of a back end, such as 103 Early Hints, for a client of HTTP/1.1 (RFC 9110, section 15.2).
//!
//! hyper cannot send them. They are written to the client's stream whenever hyper has nothing left to write. The final
//! answer waits for them.

use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::io::AsyncWrite;

use super::headers;

/// The interim answers of one connection.
#[derive(Default)]
pub struct Interim(Mutex<InterimBuffer>);

#[derive(Default)]
struct InterimBuffer {
    bytes: Vec<u8>,
    /// How many of them were written.
    written: usize,
    /// Wakes the task of the final answer.
    waker: Option<Waker>,
}

/// Bytes that may wait at once. More are dropped: interim answers are hints.
const MOST: usize = 16 << 10;

impl Interim {
    /// Passes on the interim answers to this request.
    pub fn pass_on<B>(self: &Arc<Self>, request: &mut Request<B>) {
        let interim = Arc::clone(self);
        hyper::ext::on_informational(request, move |answer| {
            interim.push(answer.status(), answer.headers());
        });
    }

    /// Waits for the final answer, and until all interim answers are written.
    pub async fn before<T>(&self, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        let answer = poll_fn(|context| {
            self.wake(context);
            answer.as_mut().poll(context)
        });
        let answer = answer.await;
        poll_fn(|context| {
            self.wake(context);
            if self.0.lock().bytes.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        answer
    }

    fn wake(&self, context: &Context<'_>) {
        let mut buffer = self.0.lock();
        match &mut buffer.waker {
            Some(waker) => context.waker().clone_into(waker),
            none => *none = Some(context.waker().clone()),
        }
    }

    /// Adds one. hyper handles 100 itself, and 101 is no interim answer.
    fn push(&self, status: StatusCode, fields: &HeaderMap) {
        if matches!(
            status,
            StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS
        ) {
            return;
        }
        let mut buffer = self.0.lock();
        let before = buffer.bytes.len();
        let mut fields = fields.clone();
        headers::strip(&mut fields);
        // A write to memory does not fail.
        let _ = buffer.head(status, &fields);
        if buffer.bytes.len() > MOST {
            buffer.bytes.truncate(before);
        }
        // Its task flushes the stream.
        if let Some(waker) = &buffer.waker {
            waker.wake_by_ref();
        }
    }

    /// Writes all that waits. Not to be called within another message.
    pub fn poll_write(
        &self,
        context: &mut Context<'_>,
        stream: Pin<&mut impl AsyncWrite>,
    ) -> Poll<io::Result<()>> {
        self.0.lock().poll_write(context, stream)
    }

    /// Writes the rest if a part is written: another message is about to begin.
    pub fn poll_end(
        &self,
        context: &mut Context<'_>,
        stream: Pin<&mut impl AsyncWrite>,
    ) -> Poll<io::Result<()>> {
        let mut buffer = self.0.lock();
        if buffer.written == 0 {
            return Poll::Ready(Ok(()));
        }
        buffer.poll_write(context, stream)
    }
}

impl InterimBuffer {
    fn head(&mut self, status: StatusCode, fields: &HeaderMap) -> io::Result<()> {
        let reason = status.canonical_reason().unwrap_or_default();
        write!(self.bytes, "HTTP/1.1 {} {reason}\r\n", status.as_str())?;
        for (name, value) in fields {
            write!(self.bytes, "{name}: ")?;
            self.bytes.write_all(value.as_bytes())?;
            self.bytes.write_all(b"\r\n")?;
        }
        self.bytes.write_all(b"\r\n")
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        mut stream: Pin<&mut impl AsyncWrite>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.written < self.bytes.len() {
            let left = &self.bytes[self.written..];
            match ready!(stream.as_mut().poll_write(context, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        (self.bytes, self.written) = (Vec::new(), 0);
        // The final answer goes on.
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderValue, LINK};

    use super::*;

    #[test]
    fn interim_answers_over_the_limit_are_dropped() {
        let interim = Interim::default();
        let mut fields = HeaderMap::new();
        let long = "</style.css>".repeat(80);
        fields.insert(LINK, HeaderValue::from_str(&long).unwrap());
        for _ in 0..1000 {
            interim.push(StatusCode::EARLY_HINTS, &fields);
        }
        let buffer = interim.0.lock();
        assert!(buffer.bytes.len() <= MOST);
        assert!(buffer.bytes.len() > MOST - 2 * long.len());
        // Whole ones only.
        assert!(buffer.bytes.ends_with(b"\r\n\r\n"));
    }
}
