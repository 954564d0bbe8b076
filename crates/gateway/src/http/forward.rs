//! A request to a backend, and its answer.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue, TE};
use hyper::{Request, Response, StatusCode, Uri, Version};

use super::upgrade::Wish;
use super::{Answer, Call, headers, text};
use crate::backend::{Answered, Asked, Failure};

/// Passes a request on.
pub async fn pass_on(call: &Call<'_>, mut request: Request<Incoming>) -> Answer {
    let Ok(wish) = Wish::of(&mut request) else {
        return text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "there are no random numbers",
        );
    };
    let http2 = call.served.site.behind.is_http2();
    if http2 && wish.is_some() {
        let why = "the server behind this one speaks HTTP/2, and nothing else";
        return text(StatusCode::NOT_IMPLEMENTED, why);
    }
    if http2 && !headers::fit_beside_others(request.headers(), request.uri()) {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return text(
            status,
            "no field of a request may have more than 8000 bytes here, nor all 16384",
        );
    }
    let trailers = http2 && headers::takes_trailers(request.headers());
    if address(&mut request, call).is_none() {
        return text(StatusCode::BAD_REQUEST, "no host of this name can be");
    }
    if let Some(wish) = &wish {
        wish.tell(request.headers_mut());
    }
    if trailers {
        // Servers of gRPC ask for it.
        let value = HeaderValue::from_static("trailers");
        request.headers_mut().insert(TE, value);
    }
    let answer = match ask(call, request.map(Asked::from)).await {
        Ok(answer) => answer,
        Err(apology) => return apology,
    };
    match wish {
        Some(wish) => wish.answer(call, answer),
        None if answer.status() == StatusCode::SWITCHING_PROTOCOLS => text(
            StatusCode::BAD_GATEWAY,
            "the server behind this one speaks out of turn",
        ),
        None => plain(answer),
    }
}

/// An answer as it is, without what was for the connection to the backend.
pub fn plain(mut answer: Response<Answered>) -> Answer {
    headers::strip(answer.headers_mut());
    answer.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// Makes the request one of the backend's; `None`: its host is none.
fn address(request: &mut Request<Incoming>, call: &Call<'_>) -> Option<()> {
    let host = headers::host(request).map(str::to_owned);
    let path = request.uri().path_and_query();
    // One of no letters at all is `/`, too.
    let path = path.filter(|path| path.as_str() != "/").cloned();
    *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
    *request.version_mut() = Version::HTTP_11;
    headers::strip(request.headers_mut());
    if let Some(host) = &host {
        let value = HeaderValue::from_str(host).ok()?;
        request.headers_mut().insert(HOST, value);
    }
    headers::introduce(request.headers_mut(), call.from, host.as_deref());
    Some(())
}

/// Asks one backend after the other, until one has been sent something.
async fn ask(call: &Call<'_>, mut request: Request<Asked>) -> Result<Response<Answered>, Answer> {
    let patience = call.served.site.backend_timeout;
    for backend in call.served.backends.in_turn() {
        match backend.exchange(request, patience, &call.house.files).await {
            Ok(answer) => return Ok(answer),
            Err(Failure::Unsent(unsent)) => request = *unsent,
            Err(Failure::Lost) => break,
            Err(Failure::Late) => {
                let why = "the server behind this one takes too long";
                return Err(text(StatusCode::GATEWAY_TIMEOUT, why));
            }
            Err(Failure::NoFile) => {
                let why = "this server has no more connections to the one behind it";
                return Err(text(StatusCode::SERVICE_UNAVAILABLE, why));
            }
        }
    }
    let why = "the server behind this one does not answer";
    Err(text(StatusCode::BAD_GATEWAY, why))
}
