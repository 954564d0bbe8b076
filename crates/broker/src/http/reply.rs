//! The dialect's envelope and its errors.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::refusal::Refusal;
use crate::transit::Reply;

/// The answer to the request of that id.
pub fn write(id: &str, result: Result<Reply, Refusal>) -> Response {
    match result {
        Ok(Reply::Nothing) => empty(StatusCode::NO_CONTENT),
        Ok(Reply::Data(status, data)) => {
            let envelope = json!({
                "request_id": id,
                "lease_id": "",
                "renewable": false,
                "lease_duration": 0,
                "data": data,
                "wrap_info": null,
                "warnings": null,
                "auth": null,
                "mount_type": "transit",
            });
            body(status, &envelope)
        }
        Err(refusal) => refused(&refusal),
    }
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

/// JSON with a status.
pub fn body(status: StatusCode, value: &Value) -> Response {
    let mut response = empty(status);
    *response.body_mut() = Body::from(value.to_string());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
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

/// 404 of a path that is nothing.
pub fn no_route(uri: &Uri) -> Response {
    let path = uri.path().trim_start_matches("/v1/");
    let message = format!("no handler for route {path:?}. route entry not found.");
    refused(&Refusal::new(StatusCode::NOT_FOUND, message))
}
