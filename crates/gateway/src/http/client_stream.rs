//! A client's stream. It sends interim answers, and tells when its buffer is empty.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::ClientTlsStream;
use crate::memory::MemoryAccount;

use super::interim::Interim;

/// The stream of a connection.
pub struct ClientStream {
    pub stream: ClientTlsStream,
    /// Interim answers for a client of HTTP/1.1.
    pub interim: Option<Arc<Interim>>,
    pub account: Arc<MemoryAccount>,
}

impl ClientStream {
    /// Writes the rest of an interim answer that has begun.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.interim {
            None => Poll::Ready(Ok(())),
            Some(interim) => interim.poll_end(context, self.stream.as_mut()),
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().stream.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_end(context))?;
        this.stream.as_mut().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_end(context))?;
        this.stream.as_mut().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes once it has written all that it has.
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
