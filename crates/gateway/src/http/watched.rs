//! A client's stream, which ends by a flood and tells when its buffer is empty.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::Patient;
use crate::memory::Account;
use crate::metrics::{Closed, Metrics};

use super::flood::Flood;
use super::interim::Interim;

/// The stream of a connection.
pub struct Watched {
    pub stream: Patient,
    /// What is written to a client of HTTP/1.1 before its answer.
    pub interim: Option<Arc<Interim>>,
    pub account: Arc<Account>,
    /// Of one that speaks HTTP/2.
    pub flood: Option<Flood>,
    pub metrics: Arc<Metrics>,
}

impl Watched {
    /// Ends what has begun before something else does.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.interim {
            None => Poll::Ready(Ok(())),
            Some(interim) => interim.poll_end(context, self.stream.as_mut()),
        }
    }

    fn sent(&mut self, bytes: &[u8]) {
        if let Some(flood) = &mut self.flood {
            flood.send(bytes);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(this.stream.as_mut().poll_read(context, buffer))?;
        if let Some(flood) = &mut this.flood
            && !flood.receive(&buffer.filled()[before..])
        {
            this.metrics.closed(Closed::Flood);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_end(context))?;
        let written = ready!(this.stream.as_mut().poll_write(context, bytes))?;
        this.sent(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_end(context))?;
        let written = ready!(this.stream.as_mut().poll_write_vectored(context, slices))?;
        let mut left = written;
        for slice in slices {
            let taken = left.min(slice.len());
            this.sent(&slice[..taken]);
            left -= taken;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper asks for this once it has written all that it has.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(interim) = &this.interim {
            ready!(interim.poll_write(context, this.stream.as_mut()))?;
        }
        ready!(this.stream.as_mut().poll_flush(context))?;
        this.account.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream.as_mut().poll_shutdown(context)
    }
}
