//! The span of a request, and spans within it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, Span};

/// A traced request. Its span ends with its answer, or when all work for it has ended.
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

/// The queue and the run on a token.
const SPANS_OF_OPERATION: usize = 2;

/// A span within a request's own. It ends when this is dropped.
pub struct ChildSpan(Box<Span>);

/// The caller's `traceparent`. `tracestate` would matter only for further calls.
struct TraceParent<'a>(Option<&'a str>);

const TRACEPARENT: &str = "traceparent";

impl Extractor for TraceParent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.filter(|_| key == TRACEPARENT)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

impl Trace {
    /// `None` where it is not sampled.
    pub(crate) fn begin(tracer: &SdkTracer, caller: Option<&str>) -> Option<Arc<Self>> {
        let propagator = TraceContextPropagator::new();
        let caller = propagator.extract_with_context(&Context::new(), &TraceParent(caller));
        let begun = (Instant::now(), SystemTime::now());
        let builder = SpanBuilder::from_name("request")
            .with_kind(SpanKind::Server)
            .with_start_time(begun.1);
        let span = tracer.build_with_context(builder, &caller);
        if !span.is_recording() {
            return None;
        }
        Some(Arc::new(Self {
            tracer: tracer.clone(),
            context: Context::new().with_span(span),
            begun,
            within: AtomicUsize::new(0),
        }))
    }

    /// The span of a request in another process, which sends its own spans: spans within it belong here. `None` where
    /// it is not sampled.
    pub(crate) fn join(tracer: &SdkTracer, parent: &str) -> Option<Arc<Self>> {
        let propagator = TraceContextPropagator::new();
        let context = propagator.extract_with_context(&Context::new(), &TraceParent(Some(parent)));
        let is_sampled = context.span().span_context().is_sampled();
        is_sampled.then(|| {
            Arc::new(Self {
                tracer: tracer.clone(),
                context,
                begun: (Instant::now(), SystemTime::now()),
                within: AtomicUsize::new(0),
            })
        })
    }

    /// `traceparent` for an operation that another process traces; `None` where there are enough spans.
    pub fn for_operation(&self) -> Option<String> {
        if self.within.fetch_add(SPANS_OF_OPERATION, Ordering::Relaxed) + 1 >= MOST {
            return None;
        }
        let span = self.context.span();
        let own = span.span_context();
        let (trace, id) = (own.trace_id(), own.span_id());
        Some(format!("00-{trace}-{id}-{:02x}", own.trace_flags()))
    }

    /// Names the span.
    pub fn name(&self, name: impl Into<Cow<'static, str>>) {
        self.context.span().update_name(name);
    }

    /// Adds an attribute. It must never hold a secret.
    pub fn say(&self, name: &'static str, value: impl Into<Value>) {
        self.context
            .span()
            .set_attribute(KeyValue::new(name, value));
    }

    /// It has its answer, or was refused; `error` in a word.
    pub fn end(&self, error: Option<String>) {
        let left_out = self.within.load(Ordering::Relaxed).saturating_sub(MOST);
        if left_out > 0 {
            let left_out = i64::try_from(left_out).unwrap_or(i64::MAX);
            self.say("hsmux.spans_left_out", left_out);
        }
        let span = self.context.span();
        if let Some(error) = error {
            self.say("error.type", error);
            span.set_status(Status::error(""));
        }
        span.end_with_timestamp(self.at(Instant::now()));
    }

    /// A span that begins now; `None` where there are enough.
    pub fn child(&self, name: &'static str) -> Option<ChildSpan> {
        self.child_of(name, Instant::now(), Vec::new())
    }

    /// A span of what is over; `error` in a word, where it failed.
    pub(crate) fn past(
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
    ) -> Option<ChildSpan> {
        if self.within.fetch_add(1, Ordering::Relaxed) >= MOST {
            return None;
        }
        let builder = SpanBuilder::from_name(name)
            .with_start_time(self.at(from))
            .with_attributes(attributes);
        let span = self.tracer.build_with_context(builder, &self.context);
        Some(ChildSpan(Box::new(span)))
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

impl ChildSpan {
    /// Marks it as failed, with the reason in one word: a sentence may quote a secret.
    pub fn failed(&mut self, why: impl Into<Value>) {
        self.0
            .set_attribute(KeyValue::new("error.type", why.into()));
        self.0.set_status(Status::error(""));
    }
}
