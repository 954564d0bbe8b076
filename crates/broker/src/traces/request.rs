//! The span of a request, by the conventions for HTTP servers (OpenTelemetry semantic conventions 1.37, HTTP spans).
//! `url.path` and `url.query` are left out: a PKCS#11 URI may hold a PIN.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Method, StatusCode, Version};
use hsmux_traces::{Trace, Traces};

use crate::http::Peer;
use crate::openapi;

/// The trace of a request, if it is sampled.
pub fn begin(traces: &Traces, request: &Request) -> Option<Arc<Trace>> {
    let trace = traces.begin(|| request.headers().get("traceparent")?.to_str().ok())?;
    describe(&trace, request);
    Some(trace)
}

/// With the answer its span ends.
pub fn answered(trace: &Trace, status: StatusCode) {
    trace.say("http.response.status_code", i64::from(status.as_u16()));
    let failed = status.is_server_error();
    trace.end(failed.then(|| status.as_str().to_owned()));
}

fn describe(trace: &Trace, request: &Request) {
    let method = method(request.method());
    let shown = if method == "_OTHER" { "HTTP" } else { method };
    trace.say("http.request.method", method);
    match openapi::route(request.uri().path()) {
        Some(route) => {
            trace.name(format!("{shown} {route}"));
            trace.say("http.route", route);
        }
        None => trace.name(shown),
    }
    let peer = request.extensions().get::<Arc<Peer>>();
    let secure = peer.is_some_and(|peer| peer.secure);
    trace.say("url.scheme", if secure { "https" } else { "http" });
    let version = match request.version() {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    trace.say("network.protocol.version", version);
    if let Some(address) = peer.and_then(|peer| peer.ip) {
        trace.say("client.address", address.to_string());
    }
}

/// A known method, LIST of the dialect included: a stranger may send any word.
fn method(method: &Method) -> &'static str {
    let known = [
        "GET", "POST", "PUT", "DELETE", "LIST", "HEAD", "PATCH", "OPTIONS",
    ];
    let found = known.into_iter().find(|known| *known == method.as_str());
    found.unwrap_or("_OTHER")
}
