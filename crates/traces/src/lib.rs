//! Spans for a collector (OpenTelemetry): where the time of requests went.
//!
//! A request without a trace costs the read of one pointer.
//!
//! | file | one idea |
//! |---|---|
//! | `trace` | the span of a request, and spans within it |
//! | `operation_spans` | an operation of the pool: its time in the queue, and on tokens |
//! | `span_source` | the source of spans by the configuration |
//! | `outbox` | the queue of finished spans, which never blocks |
//! | `collector` | export to a collector |

mod collector;
mod operation_spans;
mod outbox;
mod span_source;
mod trace;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use hsmux_token::Result;

pub use operation_spans::{OperationSpans, word};
pub use outbox::SpanCounts;
use outbox::SpanTotals;
pub use span_source::SpanSource;
pub use trace::{ChildSpan, Trace};

/// The current source of spans, if tracing is on; a reload replaces it.
#[derive(Default)]
pub struct Traces {
    source: ArcSwapOption<SpanSource>,
    totals: Arc<SpanTotals>,
}

impl Traces {
    /// As the configuration says, or else the environment.
    pub fn start(section: Option<&hsmux_config::Traces>) -> Result<Self> {
        let traces = Self::default();
        traces.change(traces.prepare(section)?);
        Ok(traces)
    }

    /// The source of spans by another configuration, `None` if that has none; or why it cannot start. Nothing changes
    /// until [`Self::change`].
    pub fn prepare(&self, section: Option<&hsmux_config::Traces>) -> Result<Option<SpanSource>> {
        SpanSource::start(section, &self.totals)
    }

    /// Traces new requests by this source. Requests that have begun end with the source that they began with.
    pub fn change(&self, to: Option<SpanSource>) {
        let collector = to.as_ref().map(|to| to.collector().to_owned());
        let before = self.source.swap(to.map(Arc::new));
        match collector {
            Some(collector) => tracing::info!(%collector, "requests are traced"),
            None if before.is_some() => tracing::info!("requests are traced no longer"),
            None => {}
        }
    }

    /// A request begins, if it is to be traced. `caller`: what it says of the trace that it is part of
    /// (`traceparent`, W3C Trace Context).
    pub fn begin<'a>(&self, caller: impl FnOnce() -> Option<&'a str>) -> Option<Arc<Trace>> {
        let source = self.source.load();
        Trace::begin(source.as_ref()?.tracer(), caller())
    }

    /// The trace of a request of another process (`traceparent`), if it is sampled: for spans of its operations.
    pub fn join(&self, parent: &str) -> Option<Arc<Trace>> {
        let source = self.source.load();
        Trace::join(source.as_ref()?.tracer(), parent)
    }

    /// True if tracing is on.
    pub fn are_made(&self) -> bool {
        self.source.load().is_some()
    }

    /// The counts of all spans; `None` without tracing.
    pub fn counts(&self) -> Option<SpanCounts> {
        Some(self.source.load().as_ref()?.counts())
    }

    /// Sends what waits, for a few seconds at most.
    pub fn finish(&self) {
        if let Some(source) = self.source.load_full() {
            source.finish();
        }
    }
}
