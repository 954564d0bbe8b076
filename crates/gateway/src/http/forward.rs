//! A request to a backend, and its answer.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri, Version};
use tokio::time::timeout;

use super::linger::linger;
use super::upgrade::{UpgradeRequest, WEBSOCKET, is_websocket};
use super::{Answer, Call, Host, Refusal, UPLOAD, UPLOADS, busy, headers, text};
use crate::backend::{ExchangeError, RequestBody, ResponseBody, WINDOW};
use crate::memory::MemoryAccount;

/// Passes a request on to a backend.
pub async fn pass_on(call: &Call<'_>, host: &Host, mut request: Request<Incoming>) -> Answer {
    // HTTP/1.0 has no interim answers.
    let interim = call.interim.as_ref();
    let interim = interim.filter(|_| request.version() == Version::HTTP_11);
    let upgrade = match prepare(call, host, &mut request) {
        Ok(upgrade) => upgrade,
        Err((status, why)) => {
            linger(request.into_body());
            return text(status, why);
        }
    };
    let interim = interim.filter(|_| upgrade.is_none());
    if let Some(interim) = interim {
        interim.pass_on(&mut request);
    }
    let mut request = match take_body(call.account, request) {
        Ok(request) => request,
        Err(rest) => {
            linger(rest);
            return busy();
        }
    };
    if let Some(record) = &*call.record.lock() {
        request.body_mut().count(record.transfer());
    }
    if call.served.site.backends.is_http2() && !is_ready(call).await {
        return busy();
    }
    let body = request.body().outcome();
    let answer = ask(call, request);
    let answer = match interim {
        None => answer.await,
        Some(interim) => interim.before(answer).await,
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(_) if body.has_failed() => return malformed(),
        Err(apology) => return apology,
    };
    match upgrade {
        Some(upgrade) => upgrade.answer(call, answer),
        None if answer.status() == StatusCode::SWITCHING_PROTOCOLS => text(
            StatusCode::BAD_GATEWAY,
            "the server behind this one speaks out of turn",
        ),
        None => plain(answer),
    }
}

/// Rewrites the request for a backend, or refuses it. Returns the protocol that the client wants to change to, if any.
fn prepare(
    call: &Call<'_>,
    host: &Host,
    request: &mut Request<Incoming>,
) -> Result<Option<UpgradeRequest>, Refusal> {
    let upgrades = &call.served.site.upgrades;
    if is_websocket(request) && !upgrades.iter().any(|allowed| allowed == WEBSOCKET) {
        let why = "this site has no WebSockets";
        return Err((StatusCode::NOT_IMPLEMENTED, why));
    }
    let upgrade = UpgradeRequest::of(request, upgrades).map_err(|_| {
        let why = "there are no random numbers";
        (StatusCode::INTERNAL_SERVER_ERROR, why)
    })?;
    let http2 = call.served.site.backends.is_http2();
    if http2 && upgrade.is_some() {
        let why = "the server behind this one speaks HTTP/2, and nothing else";
        return Err((StatusCode::NOT_IMPLEMENTED, why));
    }
    if http2 && !headers::fit_beside_others(request.headers(), request.uri()) {
        let why = "no field of a request may have more than 8000 bytes here, nor all 16384";
        return Err((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why));
    }
    let trailers = headers::takes_trailers(request.headers());
    address(request, host, call.from)
        .ok_or((StatusCode::BAD_REQUEST, "no host of this name can be"))?;
    match &upgrade {
        Some(upgrade) => upgrade.add_fields(request.headers_mut()),
        None if trailers => headers::ask_for_trailers(request.headers_mut(), http2),
        None => {}
    }
    Ok(upgrade)
}

/// The backend's answer without the fields for its connection.
pub fn plain(mut answer: Response<ResponseBody>) -> Answer {
    headers::strip(answer.headers_mut());
    answer.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// Reserves memory for what the client may send before the back end takes it. `Err`: no memory is left.
fn take_body(
    account: &Arc<MemoryAccount>,
    request: Request<Incoming>,
) -> Result<Request<RequestBody>, Incoming> {
    let (head, body) = request.into_parts();
    if body.is_end_stream() {
        return Ok(Request::from_parts(head, RequestBody::new(body, 0, None)));
    }
    let length = body.size_hint().upper();
    let length = length.map_or(UPLOAD.into(), |length| length.min(UPLOAD.into())) as usize;
    let Some(upload) = account.upload(length, UPLOADS as usize) else {
        return Err(body);
    };
    Ok(Request::from_parts(
        head,
        RequestBody::new(body, length, Some(upload)),
    ))
}

/// Waits for memory for what a back end of HTTP/2 may send ahead, and reserves it. HTTP/1.1 does not send so much
/// ahead.
async fn is_ready(call: &Call<'_>) -> bool {
    let ready = poll_fn(|context| call.account.poll_ready(context));
    let is_ready = timeout(call.served.site.backend_timeout, ready)
        .await
        .is_ok();
    *call.ahead.lock() = is_ready.then(|| call.account.charge(WINDOW as usize));
    is_ready
}

/// The answer to a request whose body is malformed, or has ended too early.
pub fn malformed() -> Answer {
    let status = StatusCode::BAD_REQUEST;
    text(status, "the body of the request is malformed or incomplete")
}

/// Rewrites the request's head for a backend. `None`: its host is invalid.
fn address(request: &mut Request<Incoming>, host: &Host, from: SocketAddr) -> Option<()> {
    let path = request.uri().path_and_query();
    // An empty path is `/` as well.
    let path = path.filter(|path| path.as_str() != "/").cloned();
    *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
    *request.version_mut() = Version::HTTP_11;
    headers::strip(request.headers_mut());
    let host = HeaderValue::from_str(&host.to_string()).ok()?;
    request.headers_mut().insert(HOST, host.clone());
    headers::introduce(request.headers_mut(), from, host);
    Some(())
}

/// Tries one backend after the other, until a part of the request has been sent to one.
async fn ask(
    call: &Call<'_>,
    mut request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, Answer> {
    let patience = call.served.site.backend_timeout;
    for backend in call.served.backends.in_turn() {
        let since = Instant::now();
        let exchanged = backend.exchange(request, patience, &call.app.files).await;
        if let Some(record) = &mut *call.record.lock() {
            record.details.used(backend, since);
        }
        match exchanged {
            Ok(answer) => return Ok(answer),
            Err(ExchangeError::Unsent(unsent)) => request = *unsent,
            Err(ExchangeError::Lost) => break,
            Err(ExchangeError::Late) => {
                let why = "the server behind this one takes too long";
                return Err(text(StatusCode::GATEWAY_TIMEOUT, why));
            }
            Err(ExchangeError::Unusable) => {
                let why = "the answer of the server behind this one cannot be passed on";
                return Err(text(StatusCode::BAD_GATEWAY, why));
            }
            Err(ExchangeError::NoFile) => {
                let why = "this server has no more connections to the one behind it";
                return Err(text(StatusCode::SERVICE_UNAVAILABLE, why));
            }
        }
    }
    let why = "the server behind this one does not answer";
    Err(text(StatusCode::BAD_GATEWAY, why))
}
