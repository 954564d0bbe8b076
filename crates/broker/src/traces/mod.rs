//! Spans of requests for a collector (OpenTelemetry): where a request's time went.
//!
//! A request that is not traced pays a look at a variable of its thread for each thing that would be a span.
//!
//! | file | one idea |
//! |---|---|
//! | `request` | a request's span, and what it says |
//! | `current` | the request that a task works for, and spans within its own |
//! | `operation` | an operation of the pool: its time in the queue, and on tokens |
//! | `outbox` | spans that wait to be sent: nobody waits for that |
//! | `collector` | what is sent to whom |

mod collector;
mod current;
mod operation;
mod outbox;
mod request;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use hsmux_pool::config;
use hsmux_token::{Error, Kind, Result};
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use collector::Collector;
pub use current::{current, follow, span, timed};
pub use operation::Operation;
pub use outbox::Counts;
use outbox::Outbox;
pub use request::Trace;

/// What makes spans of requests.
pub struct Traces {
    tracer: SdkTracer,
    outbox: Outbox,
}

impl Traces {
    /// As the configuration says, or the environment; `None`: nothing is traced.
    pub fn start(section: Option<&config::Traces>) -> Result<Option<Self>> {
        let Some(collector) = Collector::find(section)? else {
            return Ok(None);
        };
        tracing::info!(collector = %collector.url(), "requests are traced");
        let resource = collector::resource();
        let exporter = collector.exporter(&resource)?;
        let outbox = Outbox::start(exporter)
            .map_err(|e| Error::pool(Kind::Environment, format!("no thread for traces: {e}")))?;
        let mut provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_span_processor(outbox.clone());
        if let Some(share) = section.and_then(|section| section.sample) {
            let root = Box::new(Sampler::TraceIdRatioBased(share));
            provider = provider.with_sampler(Sampler::ParentBased(root));
        }
        let scope = InstrumentationScope::builder("hsmux-broker")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        Ok(Some(Self {
            tracer: provider.build().tracer_with_scope(scope),
            outbox,
        }))
    }

    /// The trace of a request, if it is to have one.
    pub fn begin(&self, request: &Request) -> Option<Arc<Trace>> {
        Trace::begin(&self.tracer, request)
    }

    /// What has become of all spans.
    pub fn counts(&self) -> Counts {
        self.outbox.counts()
    }

    /// Sends what waits, for so long at most.
    pub fn finish(&self, within: Duration) {
        self.outbox.finish(within);
    }
}
