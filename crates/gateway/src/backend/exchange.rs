//! A request and its answer, on an open connection or on a new one.

use std::error::Error as _;
use std::time::{Duration, Instant};

use h2::Reason;
use hyper::body::Body;
use hyper::client::conn::{http1, http2};
use hyper::header::HOST;
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response, Uri, Version};
use tokio::time::timeout;
use tokio_boring::SslStream;
use tokio_util::either::Either;

use super::http2_pool::{Http2Pool, ResponseBody, StreamPermit};
use super::request_body::RequestBody;
use super::sender::{Sender, one_by_one, several};
use super::{Backend, BackendStream, CONNECT, ConnectError, reasons, tls};
use crate::file_budget::{FileBudget, FilePermit};
use crate::http::has_other_coding;

/// How often a safe request is sent at most.
const TRIES: u32 = 3;

/// Why a request has no answer.
pub enum ExchangeError {
    /// Not a byte of the request was sent.
    Unsent(Box<Request<RequestBody>>),
    /// The connection has ended. Whether the request took effect is not known.
    Lost,
    /// No answer came in time.
    Late,
    /// The answer cannot be passed on.
    Unusable,
    /// There was no open connection, and the process may open no more files.
    NoFile,
}

/// The connection that a request is sent on.
struct RequestConnection {
    sender: Sender<RequestBody>,
    /// The stream on an HTTP/2 connection, which others use as well.
    permit: Option<StreamPermit>,
    /// No request was sent on it before.
    is_new: bool,
}

impl Backend {
    /// Sends a request and awaits its answer. A request is sent again only in these cases:
    ///
    /// - An open connection was closed before a byte of the request was sent.
    /// - The request is safe, and an open connection has ended.
    /// - The request is safe, and a server of HTTP/2 says that it has not processed it.
    ///
    /// A safe request is sent again on a new connection, because other open ones may be about to end.
    pub async fn exchange(
        &self,
        mut request: Request<RequestBody>,
        patience: Duration,
        files: &FileBudget,
    ) -> Result<Response<ResponseBody>, ExchangeError> {
        self.address(&mut request);
        let body = request.body().outcome();
        let (mut tries, mut since) = (TRIES, None);
        loop {
            let taken = match self.take(since, patience, files).await {
                Ok(taken) => taken,
                Err(ConnectError::NoFile) => return Err(ExchangeError::NoFile),
                Err(ConnectError::Down) => return Err(ExchangeError::Unsent(Box::new(request))),
            };
            let RequestConnection {
                mut sender,
                permit,
                is_new,
            } = taken;
            let may_end = !is_new || permit.is_some();
            let copy = may_end.then(|| copy(&request)).flatten();
            let Ok(answer) = timeout(patience, sender.try_send(request)).await else {
                tracing::warn!("{} has not answered in time", self.url);
                self.forget(permit.as_ref());
                return Err(ExchangeError::Late);
            };
            let mut error = match answer {
                Ok(answer) => {
                    self.health.answered(&self.url);
                    if has_other_coding(answer.headers()) {
                        return Err(self.unusable("a transfer coding other than chunked"));
                    }
                    if let Sender::One(sender) = sender {
                        self.http1.keep(sender);
                    }
                    return Ok(answer.map(|body| ResponseBody::new(body, permit)));
                }
                Err(error) => error,
            };
            if !is_of_stream(error.error()) {
                self.forget(permit.as_ref());
            }
            if error.error().is_parse_too_large() {
                self.health.answered(&self.url);
                return Err(self.unusable("a head of more than 100 fields, or of more than 32 KiB"));
            }
            let may_be_repeated =
                is_unseen(error.error()) || !is_new && !is_of_stream(error.error());
            request = match (error.take_message(), copy) {
                (Some(unsent), _) if !is_new => unsent,
                (_, Some(copy)) if tries > 1 && may_be_repeated => {
                    (tries, since) = (tries - 1, Some(Instant::now()));
                    copy
                }
                (unsent, _) => {
                    if !body.has_failed() {
                        self.has_not_answered(is_new, error.error());
                    }
                    return Err(unsent.map_or(ExchangeError::Lost, |it| {
                        ExchangeError::Unsent(Box::new(it))
                    }));
                }
            };
        }
    }

    /// Writes the host for the server's protocol: HTTP/2 has it in `:authority` (RFC 9113, section 8.3.1). A request
    /// without a host gets the server's.
    pub fn address<B>(&self, request: &mut Request<B>) {
        if self.http2.is_none() {
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
        // It cannot fail: all parts come from valid URIs.
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_else(|_| self.uri.clone());
    }

    async fn take(
        &self,
        since: Option<Instant>,
        patience: Duration,
        files: &FileBudget,
    ) -> Result<RequestConnection, ConnectError> {
        if let Some(http2) = &self.http2 {
            return self.join(http2, since, patience, files).await;
        }
        if since.is_none()
            && let Some(sender) = self.http1.take()
        {
            return Ok(RequestConnection::http1(sender));
        }
        let new = async |file| {
            Ok(RequestConnection {
                is_new: true,
                ..RequestConnection::http1(one_by_one(self.open(file).await?).await?)
            })
        };
        self.reach(patience, files, new).await
    }

    /// Takes a stream on a connection that was opened after `since`. If another request is opening one it waits for
    /// that; else it opens one.
    async fn join(
        &self,
        http2: &Http2Pool,
        since: Option<Instant>,
        patience: Duration,
        files: &FileBudget,
    ) -> Result<RequestConnection, ConnectError> {
        if let Some(there) = http2.take(since) {
            return Ok(RequestConnection::http2(there));
        }
        // A request that waits here holds no file, and its timeout says nothing of the server.
        let turn = timeout(patience.min(CONNECT), http2.lock_opening()).await;
        let Ok(_turn) = turn else {
            return Err(ConnectError::Down);
        };
        if let Some(there) = http2.take(since) {
            return Ok(RequestConnection::http2(there));
        }
        let new = async |file| {
            let (sender, most) = several(self.open(file).await?).await?;
            let permit = http2.keep(sender.clone(), most);
            Ok(RequestConnection {
                is_new: true,
                ..RequestConnection::http2((sender, permit))
            })
        };
        self.reach(patience, files, new).await
    }

    /// Gives this connection to no further request.
    fn forget(&self, permit: Option<&StreamPermit>) {
        if let (Some(http2), Some(permit)) = (&self.http2, permit) {
            http2.forget(permit);
        }
    }

    /// Records that a request had no answer. The server counts as failed only if the connection was new: an open one
    /// may have ended in between. A request that its client has aborted does not count either.
    fn has_not_answered(&self, is_new: bool, error: &hyper::Error) {
        let why = format!("it has not answered: {}", reasons(error));
        if is_new && !error.is_user() && !is_of_stream(error) {
            self.health.failed(&self.url, &why);
        } else {
            tracing::warn!("{}: {why}", self.url);
        }
    }

    /// Logs an answer that cannot be passed on. The server does not count as failed.
    fn unusable(&self, what: &str) -> ExchangeError {
        tracing::warn!("{}: an answer with {what} is not passed on", self.url);
        ExchangeError::Unusable
    }

    /// Opens a new connection for requests.
    pub async fn open(
        &self,
        file: FilePermit,
    ) -> Result<Either<BackendStream, SslStream<BackendStream>>, String> {
        let tcp = self.dial(file).await?;
        Ok(match &self.tls {
            None => Either::Left(tcp),
            Some(tls) => {
                let stream = tls::handshake(tls, &self.url.host, tcp).await?;
                let spoken = stream.ssl().selected_alpn_protocol();
                if self.http2.is_some() && spoken != Some(b"h2") {
                    return Err("it speaks no HTTP/2 in TLS".into());
                }
                Either::Right(stream)
            }
        })
    }
}

impl RequestConnection {
    fn http1(sender: http1::SendRequest<RequestBody>) -> Self {
        Self {
            sender: Sender::One(sender),
            permit: None,
            is_new: false,
        }
    }

    fn http2((sender, permit): (http2::SendRequest<RequestBody>, StreamPermit)) -> Self {
        Self {
            sender: Sender::Several(sender),
            permit: Some(permit),
            is_new: false,
        }
    }
}

/// Copies a safe request without a body (RFC 9110, section 9.2.1).
fn copy(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let harmless = request.method().is_safe() && request.body().is_end_stream();
    harmless.then(|| {
        let mut copy = Request::new(RequestBody::empty());
        request.method().clone_into(copy.method_mut());
        request.uri().clone_into(copy.uri_mut());
        request.headers().clone_into(copy.headers_mut());
        request.extensions().clone_into(copy.extensions_mut());
        *copy.version_mut() = request.version();
        copy
    })
}

/// Whether an error is of this request's stream alone: others on the connection go on.
fn is_of_stream(error: &hyper::Error) -> bool {
    cause(error).is_some_and(h2::Error::is_reset)
}

/// Whether the server has not processed the request: it has ended the connection before, or refused the stream (RFC
/// 9113, section 8.7).
fn is_unseen(error: &hyper::Error) -> bool {
    let refused = |it: &h2::Error| it.reason() == Some(Reason::REFUSED_STREAM);
    cause(error).is_some_and(|it| it.is_remote() && (it.is_go_away() || refused(it)))
}

fn cause(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}
