//! A stream that ends when its peer floods it with small frames, or when no memory is left for its head.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::frame_limit::FrameLimit;
use crate::head_limit::HeadLimit;

/// A stream that fails once its peer exceeds its [`FrameLimit`].
pub struct FloodGuard<S> {
    stream: S,
    limit: FrameLimit,
    /// Limits a client's heads of HTTP/1.1.
    heads: Option<HeadLimit>,
    on_flood: Option<Box<dyn FnOnce() + Send>>,
}

impl<S> FloodGuard<S> {
    /// A client's stream. `on_flood` is called when a flood ends it.
    pub fn for_client(stream: S, on_flood: impl FnOnce() + Send + 'static) -> Self {
        Self {
            stream,
            limit: FrameLimit::for_client(),
            heads: None,
            on_flood: Some(Box::new(on_flood)),
        }
    }

    /// Also charges heads of HTTP/1.1 to a memory that connections share.
    #[must_use]
    pub fn with_heads(mut self, heads: HeadLimit) -> Self {
        self.heads = Some(heads);
        self
    }

    /// A stream to a server of HTTP/2.
    pub fn for_server(stream: S) -> Self {
        Self {
            stream,
            limit: FrameLimit::for_server(),
            heads: None,
            on_flood: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FloodGuard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let heads = this.heads.as_mut().filter(|_| !this.limit.is_http2());
        if heads.is_some_and(|heads| !heads.may_read()) {
            let why = "no memory is left for the head of a request";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        if this.limit.receive(read) {
            if let Some(heads) = &mut this.heads {
                heads.receive(read.len());
            }
            return Poll::Ready(Ok(()));
        }
        if let Some(on_flood) = this.on_flood.take() {
            on_flood();
        }
        let why = "too many small frames of HTTP/2 (PING, SETTINGS, RST_STREAM, WINDOW_UPDATE), or of interim answers";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FloodGuard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        this.limit.send(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, slices))?;
        let mut left = written;
        for slice in slices {
            let taken = left.min(slice.len());
            this.limit.send(&slice[..taken]);
            left -= taken;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    const DATA: [u8; 10] = [0, 0, 1, 0, 0, 0, 0, 0, 1, 7];

    /// Sends `said` from the peer, and reads it through the guard.
    async fn read(
        guard: &mut FloodGuard<DuplexStream>,
        peer: &mut DuplexStream,
        said: &[u8],
    ) -> io::Result<()> {
        peer.write_all(said).await?;
        guard.read_exact(&mut vec![0; said.len()]).await.map(drop)
    }

    #[tokio::test]
    async fn a_flood_is_reported_once() {
        let (stream, mut peer) = duplex(64 << 10);
        let floods = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&floods);
        let mut guard = FloodGuard::for_client(stream, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        read(&mut guard, &mut peer, PREFACE).await.unwrap();
        read(&mut guard, &mut peer, &PING.repeat(900))
            .await
            .unwrap();
        assert_eq!(floods.load(Ordering::Relaxed), 0);
        for _ in 0..2 {
            let error = read(&mut guard, &mut peer, &PING.repeat(500)).await;
            let error = error.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        }
        assert_eq!(floods.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn each_frame_sent_to_a_server_allows_one_more_in_any_slices() {
        for slices in [1, 3] {
            let (stream, mut peer) = duplex(64 << 10);
            let mut guard = FloodGuard::for_server(stream);
            guard.write_all(PREFACE).await.unwrap();
            for _ in 0..100 {
                let all = DATA.repeat(30);
                let parts: Vec<_> = all.chunks(all.len().div_ceil(slices)).collect();
                let parts: Vec<_> = parts.into_iter().map(IoSlice::new).collect();
                let written = guard.write_vectored(&parts).await.unwrap();
                guard.write_all(&all[written..]).await.unwrap();
                read(&mut guard, &mut peer, &PING.repeat(30)).await.unwrap();
                peer.read_exact(&mut vec![0; all.len()]).await.unwrap();
            }
            let flood = read(&mut guard, &mut peer, &PING.repeat(1200)).await;
            assert!(flood.is_err());
        }
    }
}
