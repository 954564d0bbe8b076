//! A request of HTTP/1.1 and its answer, on a connection that waits for one, or on a new one.

use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tower::BoxError;

use super::{Backend, Unreached, reasons, tls};
use crate::files::{Files, Held};

/// Why there is no answer.
pub enum Failure {
    /// Not a byte of the request has been sent.
    Unsent(Box<Request<Incoming>>),
    /// It may have been done, or not.
    Lost,
    /// Perhaps it still will be.
    Late,
    /// Neither was there a connection to send it on, nor may there be one now.
    NoFile,
}

impl Backend {
    /// Asks it. A request that an idle connection turns out not to take, because it was closed before a byte of it was
    /// sent, goes on another; no other is ever sent again.
    pub async fn exchange(
        &self,
        mut request: Request<Incoming>,
        patience: Duration,
        files: &Files,
    ) -> Result<Response<Incoming>, Failure> {
        if !request.headers().contains_key(HOST) {
            request.headers_mut().insert(HOST, self.host.clone());
        }
        loop {
            let waiting = self.idle.take();
            let is_new = waiting.is_none();
            let sender = match waiting {
                Some(sender) => Ok(sender),
                None => self.reach(patience, files, |file| self.open(file)).await,
            };
            let mut sender = match sender {
                Ok(sender) => sender,
                Err(Unreached::NoFile) => return Err(Failure::NoFile),
                Err(Unreached::Down) => return Err(Failure::Unsent(Box::new(request))),
            };
            let Ok(answer) = timeout(patience, sender.try_send_request(request)).await else {
                tracing::warn!("{} has not answered in time", self.url);
                return Err(Failure::Late);
            };
            let mut error = match answer {
                Ok(answer) => {
                    self.health.answered(&self.url);
                    self.idle.keep(sender);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            request = match error.take_message() {
                Some(unsent) if !is_new => unsent,
                unsent => {
                    self.has_not_answered(is_new, error.error());
                    return Err(unsent.map_or(Failure::Lost, |it| Failure::Unsent(Box::new(it))));
                }
            };
        }
    }

    /// A connection of its own, closed without an answer, is as bad as none; one that was idle may have ended in between.
    /// A client that breaks off its request is no fault of the server's.
    fn has_not_answered(&self, is_new: bool, error: &hyper::Error) {
        let why = format!("it has not answered: {}", reasons(error));
        if is_new && !error.is_user() {
            self.health.failed(&self.url, &why);
        } else {
            tracing::warn!("{}: {why}", self.url);
        }
    }

    /// A new connection for requests with such bodies.
    pub async fn open<B>(&self, file: Held) -> Result<SendRequest<B>, String>
    where
        B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        let line = self.dial(file).await?;
        match &self.tls {
            None => begin(line).await,
            Some(tls) => begin(tls::shake(tls, &self.url.host, line).await?).await,
        }
    }
}

async fn begin<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<B>, String>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let begun = handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = begun.map_err(|e| reasons(&e))?;
    // It ends with its sender; what goes wrong on it, the request is told.
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    sender.ready().await.map_err(|e| reasons(&e))?;
    Ok(sender)
}
