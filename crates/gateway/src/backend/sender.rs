//! A connection that takes requests: one after the other, or several at once over HTTP/2.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use hsmux_edge::FloodGuard;
use hyper::body::{Body, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::BoxError;

use super::http2_pool::STREAMS;
use super::reasons;

/// Sends requests with such bodies on one connection.
pub enum Sender<B> {
    /// HTTP/1.1.
    One(http1::SendRequest<B>),
    /// HTTP/2.
    Several(http2::SendRequest<B>),
}

/// Returns how many requests at once a connection takes now.
pub type Most = Arc<dyn Fn() -> u32 + Send + Sync>;

/// Bytes of one answer that a server may send before the client takes them, and bytes of a request that are buffered.
/// The connection's window has room for all of its answers: none waits for the client of another.
pub const WINDOW: u32 = 32 << 10;

/// Requests at once until the server has said how many it takes.
const FIRST: usize = 10;

/// Bytes of an answer's head. Over HTTP/1.1 also the bytes that are read at once.
const HEAD: u32 = 32 << 10;

impl<B> Sender<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    /// Sends a request, and awaits the head of its answer.
    pub async fn try_send(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, TrySendError<Request<B>>> {
        match self {
            Self::One(sender) => sender.try_send_request(request).await,
            Self::Several(sender) => sender.try_send_request(request).await,
        }
    }
}

/// Begins HTTP/1.1 on a new connection. It ends with its sender, and the request gets its errors.
pub async fn one_by_one<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<http1::SendRequest<B>, String>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let begun = http1::Builder::new()
        .max_buf_size(HEAD as usize)
        .handshake(TokioIo::new(stream))
        .await;
    let (mut sender, connection) = begun.map_err(|e| reasons(&e))?;
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    sender.ready().await.map_err(|e| reasons(&e))?;
    Ok(sender)
}

/// Begins HTTP/2 on a new connection. It ends with its senders and their answers. It sends no PING: servers of gRPC
/// take them for an attack.
pub async fn several<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(http2::SendRequest<B>, Most), String>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let begun = http2::Builder::new(TokioExecutor::new())
        .initial_max_send_streams(FIRST)
        .max_header_list_size(HEAD)
        .max_send_buf_size(WINDOW as usize)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW * STREAMS)
        .handshake(TokioIo::new(FloodGuard::for_server(stream)))
        .await;
    let (mut sender, connection) = begun.map_err(|e| reasons(&e))?;
    // Shared with `most`: only the connection knows the limit, and it does not tell when that changes.
    let connection = Arc::new(Mutex::new(Some(connection)));
    let limited = Arc::clone(&connection);
    let most = move || {
        let connection = limited.lock();
        let connection = connection.as_ref();
        let most = connection.map_or(0, http2::Connection::current_max_send_streams);
        u32::try_from(most).map_or(STREAMS, |most| most.min(STREAMS))
    };
    tokio::spawn(async move {
        poll_fn(|context| match connection.lock().as_mut() {
            Some(connection) => Pin::new(connection).poll(context).map(drop),
            None => Poll::Ready(()),
        })
        .await;
        // Requests that were not sent get their error.
        let ended = connection.lock().take();
        drop(ended);
    });
    sender.ready().await.map_err(|e| reasons(&e))?;
    Ok((sender, Arc::new(most)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper::server::conn::{http1 as server1, http2 as server2};
    use hyper::service::service_fn;
    use tokio::io::duplex;

    use super::*;

    /// Sends a request to a server whose answer has a field of `length` bytes. Returns whether the answer is taken.
    async fn takes(is_http2: bool, length: usize) -> bool {
        // There is room for the whole answer.
        let (near, far) = duplex(1 << 20);
        let answer = service_fn(move |_: Request<Incoming>| async move {
            let answer = Response::builder().header("x-long", "x".repeat(length));
            Ok::<_, Infallible>(answer.body(Empty::<Bytes>::new()).unwrap())
        });
        let far = TokioIo::new(far);
        tokio::spawn(async move {
            if is_http2 {
                let server = server2::Builder::new(TokioExecutor::new());
                drop(server.serve_connection(far, answer).await);
            } else {
                drop(server1::Builder::new().serve_connection(far, answer).await);
            }
        });
        let mut sender = if is_http2 {
            Sender::Several(several(near).await.unwrap().0)
        } else {
            Sender::One(one_by_one(near).await.unwrap())
        };
        let request = Request::get("http://a.test/").body(Empty::<Bytes>::new());
        sender.try_send(request.unwrap()).await.is_ok()
    }

    #[tokio::test]
    async fn the_head_of_an_answer_has_32_kib() {
        // Over HTTP/1.1 hyper may read half as much again at once.
        for (is_http2, too_long) in [(false, 52_000), (true, 33_000)] {
            assert!(takes(is_http2, 32_000).await, "HTTP/2: {is_http2}");
            assert!(!takes(is_http2, too_long).await, "HTTP/2: {is_http2}");
        }
    }

    /// How many requests at once a server gets that allows so many.
    async fn most_of(allowed: u32) -> u32 {
        let (near, far) = duplex(1 << 20);
        let answer = service_fn(move |_: Request<Incoming>| async move {
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
        tokio::spawn(async move {
            let mut server = server2::Builder::new(TokioExecutor::new());
            server.max_concurrent_streams(allowed);
            drop(server.serve_connection(TokioIo::new(far), answer).await);
        });
        let (mut sender, most) = several(near).await.unwrap();
        let request = Request::get("http://a.test/").body(Empty::<Bytes>::new());
        // Its settings come before its first answer.
        assert!(sender.try_send_request(request.unwrap()).await.is_ok());
        most()
    }

    #[tokio::test]
    async fn a_connection_takes_100_requests_at_once_at_most() {
        assert_eq!(most_of(1000).await, 100);
        assert_eq!(most_of(40).await, 40);
    }
}
