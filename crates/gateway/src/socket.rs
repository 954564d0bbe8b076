//! A client's socket. Another task may watch for its end while TLS uses it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// A buffered socket. TLS reads the few bytes before each record and then the record; this reads all that is there at
/// once.
pub struct Socket {
    stream: Arc<TcpStream>,
    /// Bytes that were read ahead.
    ahead: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
    last_write: LastWrite,
    /// Nothing was sent since the last read, which may not be acknowledged yet.
    is_unanswered: bool,
}

/// Set before the last write. The answer, TLS's close_notify and TCP's FIN then travel in one segment. Else each has
/// its own, and wakes up the client.
#[derive(Clone, Default)]
pub struct LastWrite(Arc<AtomicBool>);

/// Size of the buffer. Reads of this size go past it.
const AHEAD: usize = 2048;

/// Watches whether the client hangs up.
pub struct HangupWatch(Arc<TcpStream>);

impl Socket {
    pub fn new(stream: TcpStream) -> (Self, HangupWatch) {
        let stream = Arc::new(stream);
        let socket = Self {
            stream: Arc::clone(&stream),
            ahead: Vec::new(),
            taken: 0,
            last_write: LastWrite::default(),
            is_unanswered: false,
        };
        (socket, HangupWatch(stream))
    }

    /// A handle to announce the last write.
    pub fn last_write(&self) -> LastWrite {
        self.last_write.clone()
    }

    /// Whether bytes were read ahead.
    pub fn has_more(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Acknowledges the last read at once, unless something was sent since then, which has done that.
    pub fn acknowledge(&self) {
        if self.is_unanswered {
            // If it fails the acknowledgment is only later, as usual.
            let _ = rustix::net::sockopt::set_tcp_quickack(self.stream.as_fd(), true);
        }
    }

    /// The address that the client has connected to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// The first byte. It is not consumed.
    pub async fn first_byte(&mut self) -> io::Result<u8> {
        if self.ahead.is_empty() {
            poll_fn(|context| self.fill(context)).await?;
        }
        let first = self.ahead.get(self.taken).copied();
        first.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; AHEAD];
        let read = ready!(self.receive(context, &mut bytes))?;
        self.ahead.extend_from_slice(&bytes[..read]);
        Poll::Ready(Ok(()))
    }

    fn receive(&mut self, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let mut short = None;
            let read = self.stream.try_io(Interest::READABLE, || {
                let read = recv(self.stream.as_fd(), &mut *bytes, RecvFlags::empty())?.0;
                if !(1..bytes.len()).contains(&read) {
                    return Ok(read);
                }
                // A short read has emptied the socket. WouldBlock tells tokio, which saves a read in vain next time.
                short = Some(read);
                Err(io::ErrorKind::WouldBlock.into())
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(read) = short {
                        self.is_unanswered = true;
                        return Poll::Ready(Ok(read));
                    }
                }
                read => {
                    self.is_unanswered = true;
                    return Poll::Ready(read);
                }
            }
        }
    }

    /// Takes bytes that were read ahead.
    fn take(&mut self, buffer: &mut ReadBuf<'_>) {
        let left = &self.ahead[self.taken..];
        let wanted = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..wanted]);
        self.taken += wanted;
        if self.taken == self.ahead.len() {
            // An idle connection keeps no buffer.
            (self.ahead, self.taken) = (Vec::new(), 0);
        }
    }

    fn send(
        &mut self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.is_unanswered = false;
                    return Poll::Ready(written);
                }
            }
        }
    }
}

impl LastWrite {
    /// From now on the kernel holds back what is not a whole segment until the end (tcp(7), MSG_MORE; 200 ms at most).
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl HangupWatch {
    /// Returns once the client has closed the connection, or its own half: a handshake cannot complete without that.
    pub async fn hung_up(self) {
        /// How often unread bytes are looked at again: while there are some, no event tells of the end.
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
        let socket = self.get_mut();
        if !socket.ahead.is_empty() {
            socket.take(buffer);
        } else if buffer.remaining() >= AHEAD {
            let read = ready!(socket.receive(context, buffer.initialize_unfilled()))?;
            buffer.advance(read);
        } else {
            let mut bytes = [0; AHEAD];
            let read = ready!(socket.receive(context, &mut bytes))?;
            let (now, later) = bytes[..read].split_at(read.min(buffer.remaining()));
            buffer.put_slice(now);
            socket.ahead.extend_from_slice(later);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        if !socket.last_write.is_set() {
            return socket.send(context, |stream| stream.try_write(bytes));
        }
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        socket.send(context, |stream| {
            let send = || Ok(send(stream.as_fd(), bytes, flags)?);
            stream.try_io(Interest::WRITABLE, send)
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        socket.send(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Write);
        Poll::Ready(shut.map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// All bytes arrive in order, and then the end, whatever the sizes of reads.
    #[tokio::test]
    async fn bytes_that_were_read_ahead_are_not_lost() {
        let sent: Vec<u8> = (0..50_000_u32).map(|n| (n % 251) as u8).collect();
        for sizes in [&[5, 700][..], &[1], &[5, 16_384], &[2047, 2048, 2049]] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let bytes = sent.clone();
            let sender = tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
            });
            let (mut socket, _presence) = Socket::new(listener.accept().await.unwrap().0);
            let mut read = Vec::new();
            for size in sizes.iter().cycle() {
                let mut bytes = vec![0; *size];
                let len = socket.read(&mut bytes).await.unwrap();
                if len == 0 {
                    break;
                }
                read.extend_from_slice(&bytes[..len]);
            }
            assert_eq!(read, sent, "by {sizes:?}");
            sender.await.unwrap();
        }
    }

    /// The kernel waits 200 ms for the end. A slow machine may miss that, so only half of the tries have to succeed.
    #[tokio::test]
    async fn the_last_write_is_sent_with_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut together = 0;
        for _ in 0..10 {
            let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_nonblocking(true).unwrap();
            let (mut socket, _presence) = Socket::new(listener.accept().await.unwrap().0);
            socket.last_write().set();
            socket.write_all(b"answer").await.unwrap();
            let early = io::Read::read(&mut client, &mut [0; 20]);
            together += usize::from(early.is_err());
            socket.write_all(b", end").await.unwrap();
            socket.shutdown().await.unwrap();
            let mut client = TcpStream::from_std(client).unwrap();
            let mut left = Vec::new();
            client.read_to_end(&mut left).await.unwrap();
            assert_eq!(&b"answer, end"[early.unwrap_or(0)..], left);
        }
        assert!(together >= 5, "{together} of 10");
    }
}
