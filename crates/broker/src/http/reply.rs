//! The dialect's envelope and its errors.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use hsmux_traces::Trace;
use serde::Serialize;
use serde_json::json;

use super::Broker;
use crate::metrics::Reason;
use crate::refusal::Refusal;
use crate::traces;
use crate::transit::{Data, Reply};

/// The dialect's envelope of an answer.
#[derive(Serialize)]
struct Envelope<'a, T> {
    request_id: &'a str,
    lease_id: &'static str,
    renewable: bool,
    lease_duration: u32,
    data: T,
    wrap_info: Option<()>,
    warnings: Option<()>,
    auth: Option<()>,
    mount_type: &'static str,
}

#[derive(Serialize)]
struct BatchResults {
    batch_results: Vec<Data>,
}

impl<'a, T> Envelope<'a, T> {
    fn around(id: &'a str, data: T) -> Self {
        Self {
            request_id: id,
            lease_id: "",
            renewable: false,
            lease_duration: 0,
            data,
            wrap_info: None,
            warnings: None,
            auth: None,
            mount_type: "transit",
        }
    }
}

/// The answer to the request with this id.
pub fn write(id: &str, reply: Reply) -> Response {
    match reply {
        Reply::Nothing => empty(StatusCode::NO_CONTENT),
        Reply::Data(status, data) => body(status, &Envelope::around(id, data)),
        Reply::Batch(status, batch_results) => body(
            status,
            &Envelope::around(id, BatchResults { batch_results }),
        ),
    }
}

/// An answer; the request's span ends with it.
pub fn traced(trace: Option<&Trace>, answer: Response) -> Response {
    if let Some(trace) = trace {
        traces::answered(trace, answer.status());
    }
    answer
}

/// An error, which is counted.
pub fn counted(broker: &Broker, refusal: &Refusal) -> Response {
    broker.metrics.refused(Reason::of(refusal));
    refused(refusal)
}

/// An error.
pub fn refused(refusal: &Refusal) -> Response {
    let errors: Vec<&str> = refusal.message.as_deref().into_iter().collect();
    let mut response = body(refusal.status, &json!({ "errors": errors }));
    if let Some(after) = refusal.retry_after {
        let seconds = after.as_millis().div_ceil(1000).max(1);
        if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
    }
    response
}

/// The size of most answers, in bytes.
const TYPICAL_SIZE: usize = 1 << 10;

/// JSON with a status.
pub fn body(status: StatusCode, value: &impl Serialize) -> Response {
    let mut written = Vec::with_capacity(TYPICAL_SIZE);
    // It cannot fail: no map has keys that are not text.
    let _ = serde_json::to_writer(&mut written, value);
    // The capacity counts while the client takes it.
    if written.len() > TYPICAL_SIZE {
        written.shrink_to_fit();
    }
    let mut response = text("application/json", written);
    *response.status_mut() = status;
    response
}

/// Text of a kind.
pub fn text(kind: &'static str, text: impl Into<Body>) -> Response {
    let mut response = empty(StatusCode::OK);
    *response.body_mut() = text.into();
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let never = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, never);
    response
}

/// 405.
pub fn unsupported() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "unsupported operation")
}

/// 404 for an unknown path.
pub fn no_route(uri: &Uri) -> Refusal {
    let path = uri.path().trim_start_matches("/v1/");
    let message = format!("no handler for route {path:?}. route entry not found.");
    Refusal::new(StatusCode::NOT_FOUND, message)
}
