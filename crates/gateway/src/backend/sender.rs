//! A connection that takes requests: one after the other, or, of HTTP/2, several at once.

use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::BoxError;

use super::reasons;
use super::shared::STREAMS;

/// What takes requests with such bodies.
pub enum Sender<B> {
    /// Of HTTP/1.1.
    One(http1::SendRequest<B>),
    /// Of HTTP/2.
    Several(http2::SendRequest<B>),
}

/// What a server may send of one answer before its client has taken it. All answers of a connection have as much, so that none
/// waits for the client of another.
const WINDOW: u32 = 128 << 10;

/// How often a server is asked for a sign of life while it owes answers, and how long that may take.
const PING: Duration = Duration::from_secs(10);

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

/// One after the other on a new connection. It ends with its sender; what goes wrong on it, the request is told.
pub async fn one_by_one<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<http1::SendRequest<B>, String>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let begun = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = begun.map_err(|e| reasons(&e))?;
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    sender.ready().await.map_err(|e| reasons(&e))?;
    Ok(sender)
}

/// Several at once. It ends with its senders and their answers.
pub async fn several<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<http2::SendRequest<B>, String>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let begun = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW * STREAMS)
        .handshake(TokioIo::new(stream))
        .await;
    let (mut sender, connection) = begun.map_err(|e| reasons(&e))?;
    tokio::spawn(async move { drop(connection.await) });
    sender.ready().await.map_err(|e| reasons(&e))?;
    Ok(sender)
}
