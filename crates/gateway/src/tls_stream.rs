//! A client's TLS connection: BoringSSL's own stream on an asynchronous socket.
//!
//! The stream of tokio-boring cannot send session tickets before there is something to write.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use boring::ssl::{
    ErrorCode, HandshakeError, ShutdownResult, Ssl, SslRef, SslStream, SslStreamBuilder,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::socket::Socket;

/// A connection whose handshake is done.
pub struct TlsStream(SslStream<SyncSocket>);

/// The socket for BoringSSL, which never blocks.
struct SyncSocket {
    socket: Socket,
    /// The task that reads or writes now.
    waker: Waker,
}

/// The largest record (RFC 8446, section 5.1), which is also the most that one read returns.
const RECORD: usize = 16 << 10;

impl TlsStream {
    /// The handshake of a server. `None`: it has failed, and the client got an alert.
    pub async fn accept(ssl: Ssl, socket: Socket) -> Option<Self> {
        let socket = SyncSocket {
            socket,
            waker: Waker::noop().clone(),
        };
        let mut pending = Some(SslStreamBuilder::new(ssl, socket).setup_accept());
        poll_fn(|context| {
            let Some(mut handshake) = pending.take() else {
                return Poll::Ready(None);
            };
            context.waker().clone_into(&mut handshake.get_mut().waker);
            let waker = Some(context.waker().clone());
            handshake.ssl_mut().set_task_waker(waker);
            match handshake.handshake() {
                Ok(mut stream) => {
                    stream.ssl_mut().set_task_waker(None);
                    Poll::Ready(Some(Self(stream)))
                }
                Err(HandshakeError::WouldBlock(handshake)) => {
                    pending = Some(handshake);
                    Poll::Pending
                }
                Err(_) => Poll::Ready(None),
            }
        })
        .await
    }

    /// Sends session tickets or an acknowledgment right after the handshake. The client's kernel may hold back the
    /// first request until then, for 40 ms (Nagle's algorithm, delayed acknowledgments).
    ///
    /// Nothing is sent if the request is there already, or if HTTP/2 begins with a frame of the server, which has the
    /// same effect.
    pub fn acknowledge_handshake(&mut self) {
        if self.get_ref().has_more() || self.is_http2() {
            return;
        }
        crate::ticket_keys::send(self.0.ssl_mut());
        self.get_ref().acknowledge();
    }

    /// Whether client and server have agreed on HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.ssl().selected_alpn_protocol() == Some(b"h2")
    }

    pub fn ssl(&self) -> &SslRef {
        self.0.ssl()
    }

    pub fn get_ref(&self) -> &Socket {
        &self.0.get_ref().socket
    }

    fn within<T>(
        &mut self,
        context: &Context<'_>,
        work: impl FnOnce(&mut SslStream<SyncSocket>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        context.waker().clone_into(&mut self.0.get_mut().waker);
        match work(&mut self.0) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            done => Poll::Ready(done),
        }
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = buffer.remaining().min(RECORD);
        let part = buffer.initialize_unfilled_to(most);
        let read = ready!(self.get_mut().within(context, |stream| stream.read(part)))?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().within(context, |stream| stream.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().within(context, Write::flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.within(context, |stream| match stream.shutdown() {
            Ok(ShutdownResult::Sent | ShutdownResult::Received) => Ok(()),
            Err(error) => match error.code() {
                ErrorCode::ZERO_RETURN => Ok(()),
                ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                _ => Err(error.into_io_error().unwrap_or_else(io::Error::other)),
            },
        }))?;
        Pin::new(&mut this.0.get_mut().socket).poll_shutdown(context)
    }
}

impl SyncSocket {
    fn poll<T>(
        &mut self,
        work: impl FnOnce(Pin<&mut Socket>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let mut context = Context::from_waker(&self.waker);
        match work(Pin::new(&mut self.socket), &mut context) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Read for SyncSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        self.poll(|socket, context| socket.poll_read(context, &mut buffer))?;
        Ok(buffer.filled().len())
    }
}

impl Write for SyncSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.poll(|socket, context| socket.poll_write(context, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.poll(AsyncWrite::poll_flush)
    }
}
