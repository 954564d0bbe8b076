//! A request and its answer, on a connection that is there, or on a new one.

use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::HOST;
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response, Uri, Version};
use tokio::time::timeout;
use tokio_boring::SslStream;
use tokio_util::either::Either;

use super::sender::{Sender, one_by_one, several};
use super::shared::{Answered, Share, Shared};
use super::{Backend, Line, Unreached, reasons, tls};
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

/// What a request goes on.
struct Taken {
    sender: Sender<Incoming>,
    /// Of a connection that others use as well.
    share: Option<Share>,
    /// Nobody has asked anything on it before.
    is_new: bool,
}

impl Backend {
    /// Asks it. A request that a connection which was there turns out not to take, because it was closed before a byte of it
    /// was sent, goes on another; no other is ever sent again.
    pub async fn exchange(
        &self,
        mut request: Request<Incoming>,
        patience: Duration,
        files: &Files,
    ) -> Result<Response<Answered>, Failure> {
        self.address(&mut request);
        loop {
            let taken = match self.take(patience, files).await {
                Ok(taken) => taken,
                Err(Unreached::NoFile) => return Err(Failure::NoFile),
                Err(Unreached::Down) => return Err(Failure::Unsent(Box::new(request))),
            };
            let Taken {
                mut sender,
                share,
                is_new,
            } = taken;
            let Ok(answer) = timeout(patience, sender.try_send(request)).await else {
                tracing::warn!("{} has not answered in time", self.url);
                return Err(Failure::Late);
            };
            let mut error = match answer {
                Ok(answer) => {
                    self.health.answered(&self.url);
                    if let Sender::One(sender) = sender {
                        self.idle.keep(sender);
                    }
                    return Ok(answer.map(|body| Answered::new(body, share)));
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

    /// Makes a request name the server where it names none, in the words of the server's protocol: HTTP/2 has the host
    /// beside the path (RFC 9113, section 8.3.1).
    pub fn address<B>(&self, request: &mut Request<B>) {
        if self.shared.is_none() {
            let headers = request.headers_mut();
            headers.entry(HOST).or_insert_with(|| self.host.clone());
            return;
        }
        *request.version_mut() = Version::HTTP_2;
        let host = request.headers_mut().remove(HOST);
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        parts.authority = host
            .or(parts.authority)
            .or_else(|| self.uri.authority().cloned());
        parts.scheme = Some(match self.tls {
            None => Scheme::HTTP,
            Some(_) => Scheme::HTTPS,
        });
        // Nothing in it was made here but a scheme.
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_else(|_| self.uri.clone());
    }

    async fn take(&self, patience: Duration, files: &Files) -> Result<Taken, Unreached> {
        let shared = self.shared.as_ref();
        let there = match shared {
            None => self.idle.take().map(Taken::alone),
            Some(shared) => shared.take().map(Taken::among_others),
        };
        if let Some(there) = there {
            return Ok(there);
        }
        let new = async |file| match shared {
            Some(shared) => self.join(shared, file).await,
            None => Ok(Taken {
                is_new: true,
                ..Taken::alone(one_by_one(self.open(file).await?).await?)
            }),
        };
        self.reach(patience, files, new).await
    }

    /// On a connection that somebody else has opened meanwhile, or on a new one.
    async fn join(&self, shared: &Shared, file: Held) -> Result<Taken, String> {
        let _turn = shared.turn().await;
        if let Some(there) = shared.take() {
            return Ok(Taken::among_others(there));
        }
        let sender = several(self.open(file).await?).await?;
        let share = shared.keep(sender.clone());
        Ok(Taken {
            is_new: true,
            ..Taken::among_others((sender, share))
        })
    }

    /// A connection of its own, closed without an answer, is as bad as none; one that was there may have ended in between.
    /// A client that breaks off its request is no fault of the server's.
    fn has_not_answered(&self, is_new: bool, error: &hyper::Error) {
        let why = format!("it has not answered: {}", reasons(error));
        if is_new && !error.is_user() {
            self.health.failed(&self.url, &why);
        } else {
            tracing::warn!("{}: {why}", self.url);
        }
    }

    /// A new connection for requests.
    pub async fn open(&self, file: Held) -> Result<Either<Line, SslStream<Line>>, String> {
        let line = self.dial(file).await?;
        Ok(match &self.tls {
            None => Either::Left(line),
            Some(tls) => {
                let stream = tls::shake(tls, &self.url.host, line).await?;
                let spoken = stream.ssl().selected_alpn_protocol();
                if self.shared.is_some() && spoken != Some(b"h2") {
                    return Err("it speaks no HTTP/2 in TLS".into());
                }
                Either::Right(stream)
            }
        })
    }
}

impl Taken {
    fn alone(sender: http1::SendRequest<Incoming>) -> Self {
        Self {
            sender: Sender::One(sender),
            share: None,
            is_new: false,
        }
    }

    fn among_others((sender, share): (http2::SendRequest<Incoming>, Share)) -> Self {
        Self {
            sender: Sender::Several(sender),
            share: Some(share),
            is_new: false,
        }
    }
}
