//! A connection's socket, which somebody else may watch while TLS has it.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// The one that reads and writes.
pub struct Socket(Arc<TcpStream>);

/// Whether the other side is there.
pub struct Presence(Arc<TcpStream>);

impl Socket {
    pub fn new(stream: TcpStream) -> (Self, Presence) {
        let stream = Arc::new(stream);
        (Self(Arc::clone(&stream)), Presence(stream))
    }

    fn write(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl Presence {
    /// Ends once the other side has closed the connection, or its own half: a handshake does not end without that.
    pub async fn hung_up(self) {
        /// What has come is for the other one to read. Until it does, nothing tells when more happens.
        const AGAIN: Duration = Duration::from_secs(1);
        while let Ok(1..) = self.0.peek(&mut [0]).await {
            let ready = self.0.ready(Interest::READABLE).await;
            if !ready.is_ok_and(|ready| !ready.is_read_closed()) {
                return;
            }
            sleep(AGAIN).await;
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = rustix::net::shutdown(self.0.as_fd(), rustix::net::Shutdown::Write);
        Poll::Ready(shut.map_err(io::Error::from))
    }
}
