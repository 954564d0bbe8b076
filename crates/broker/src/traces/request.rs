//! A request's span, and what it says: by the conventions for HTTP servers (OpenTelemetry semantic
//! conventions 1.37, HTTP spans), but for `url.path` and `url.query`: there may be a PIN in a PKCS#11 URI.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Version};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, Span};

use crate::http::Peer;
use crate::openapi;

/// A request that is traced. Its span ends with its answer, or when nobody works for it any more.
pub struct Trace {
    tracer: SdkTracer,
    /// With the request's span.
    context: Context,
    begun: (Instant, SystemTime),
    /// Spans within it that were asked for.
    within: AtomicUsize,
}

/// Spans within a request's own: a batch has thousands of operations.
const MOST: usize = 128;

/// A span within a request's own. It ends when this is dropped.
pub struct Child(Box<Span>);

/// The head of a request as its caller's context is read of. `tracestate` is for those whom we would call.
struct Head<'a>(&'a HeaderMap);

impl Extractor for Head<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == "traceparent").then(|| self.0.get(key)?.to_str().ok())?
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}

impl Trace {
    /// `None` where it is not sampled.
    pub(super) fn begin(tracer: &SdkTracer, request: &Request) -> Option<Arc<Self>> {
        let caller = Head(request.headers());
        let caller = TraceContextPropagator::new().extract_with_context(&Context::new(), &caller);
        let begun = (Instant::now(), SystemTime::now());
        let builder = SpanBuilder::from_name("HTTP")
            .with_kind(SpanKind::Server)
            .with_start_time(begun.1);
        let mut span = tracer.build_with_context(builder, &caller);
        if !span.is_recording() {
            return None;
        }
        describe(&mut span, request);
        Some(Arc::new(Self {
            tracer: tracer.clone(),
            context: Context::new().with_span(span),
            begun,
            within: AtomicUsize::new(0),
        }))
    }

    /// What the request says of itself on the audit trail, and in its answer.
    pub fn id(&self, id: &str) {
        self.say("hsmux.request_id", id);
    }

    /// Which key it is about, by a name that may be shown.
    pub fn key(&self, key: &str) {
        self.say("hsmux.key", key);
    }

    fn say(&self, name: &'static str, value: &str) {
        let attribute = KeyValue::new(name, value.to_owned());
        self.context.span().set_attribute(attribute);
    }

    /// Its span ends.
    pub fn answered(&self, status: StatusCode) {
        let span = self.context.span();
        let code = i64::from(status.as_u16());
        span.set_attribute(KeyValue::new("http.response.status_code", code));
        if status.is_server_error() {
            span.set_attribute(KeyValue::new("error.type", status.as_str().to_owned()));
            span.set_status(Status::error(""));
        }
        let left_out = self.within.load(Ordering::Relaxed).saturating_sub(MOST);
        if left_out > 0 {
            let left_out = i64::try_from(left_out).unwrap_or(i64::MAX);
            span.set_attribute(KeyValue::new("hsmux.spans_left_out", left_out));
        }
        span.end_with_timestamp(self.at(Instant::now()));
    }

    /// A span that begins now; `None` where there are enough.
    pub fn child(&self, name: &'static str) -> Option<Child> {
        self.child_of(name, Instant::now(), Vec::new())
    }

    /// A span of what is over; `error` in a word, where it failed.
    pub(super) fn past(
        &self,
        name: &'static str,
        (from, to): (Instant, Instant),
        attributes: Vec<KeyValue>,
        error: Option<String>,
    ) {
        if let Some(mut child) = self.child_of(name, from, attributes) {
            if let Some(error) = error {
                child.failed(error);
            }
            child.0.end_with_timestamp(self.at(to));
        }
    }

    fn child_of(
        &self,
        name: &'static str,
        from: Instant,
        attributes: Vec<KeyValue>,
    ) -> Option<Child> {
        if self.within.fetch_add(1, Ordering::Relaxed) >= MOST {
            return None;
        }
        let builder = SpanBuilder::from_name(name)
            .with_start_time(self.at(from))
            .with_attributes(attributes);
        let span = self.tracer.build_with_context(builder, &self.context);
        Some(Child(Box::new(span)))
    }

    /// The time of day, which may not jump within a trace.
    fn at(&self, moment: Instant) -> SystemTime {
        let (first, time) = self.begun;
        time + moment.saturating_duration_since(first)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let span = self.context.span();
        if span.is_recording() {
            span.set_attribute(KeyValue::new("error.type", "gone"));
            span.set_status(Status::error("the client has gone"));
            span.end_with_timestamp(self.at(Instant::now()));
        }
    }
}

impl Child {
    /// Why, in a word: a sentence may have a piece of what nobody is to see.
    pub fn failed(&mut self, why: impl Into<opentelemetry::Value>) {
        self.0
            .set_attribute(KeyValue::new("error.type", why.into()));
        self.0.set_status(Status::error(""));
    }
}

fn describe(span: &mut Span, request: &Request) {
    let method = method(request.method());
    let shown = if method == "_OTHER" { "HTTP" } else { method };
    span.set_attribute(KeyValue::new("http.request.method", method));
    match openapi::route(request.uri().path()) {
        Some(route) => {
            span.update_name(format!("{shown} {route}"));
            span.set_attribute(KeyValue::new("http.route", route));
        }
        None => span.update_name(shown),
    }
    let peer = request.extensions().get::<Arc<Peer>>();
    let secure = peer.is_some_and(|peer| peer.secure);
    let scheme = if secure { "https" } else { "http" };
    span.set_attribute(KeyValue::new("url.scheme", scheme));
    let version = match request.version() {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    span.set_attribute(KeyValue::new("network.protocol.version", version));
    if let Some(address) = peer.and_then(|peer| peer.ip) {
        span.set_attribute(KeyValue::new("client.address", address.to_string()));
    }
}

/// Methods that are known, LIST of the dialect among them: a stranger may send any word.
fn method(method: &Method) -> &'static str {
    let known = [
        "GET", "POST", "PUT", "DELETE", "LIST", "HEAD", "PATCH", "OPTIONS",
    ];
    let found = known.into_iter().find(|known| *known == method.as_str());
    found.unwrap_or("_OTHER")
}
