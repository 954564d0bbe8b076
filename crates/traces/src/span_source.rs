//! A source of spans by the configuration, with its export.

use std::sync::Arc;

use hsmux_token::{Error, Kind, Result};
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use crate::collector::{Collector, resource};
use crate::outbox::{LAST, Outbox, SpanCounts, SpanTotals};

/// A collector, and the share of requests that it gets. When this goes, what it has made is still sent.
pub struct SpanSource {
    collector: String,
    tracer: SdkTracer,
    outbox: Outbox,
}

impl SpanSource {
    /// As the configuration says, or the environment; `None`: neither does.
    pub(crate) fn start(
        section: Option<&hsmux_config::Traces>,
        totals: &Arc<SpanTotals>,
    ) -> Result<Option<Self>> {
        let Some(collector) = Collector::find(section)? else {
            return Ok(None);
        };
        let (url, resource) = (collector.url().to_string(), resource());
        let exporter = collector.exporter(&resource)?;
        let outbox = Outbox::start(exporter, Arc::clone(totals))
            .map_err(|e| Error::pool(Kind::Environment, format!("no thread for traces: {e}")))?;
        let mut provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_span_processor(outbox.clone());
        if let Some(share) = section.and_then(|section| section.sample) {
            let root = Box::new(Sampler::TraceIdRatioBased(share));
            provider = provider.with_sampler(Sampler::ParentBased(root));
        }
        let scope = InstrumentationScope::builder("hsmux")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        Ok(Some(Self {
            collector: url,
            tracer: provider.build().tracer_with_scope(scope),
            outbox,
        }))
    }

    /// The collector of its spans.
    pub(crate) fn collector(&self) -> &str {
        &self.collector
    }

    pub(crate) const fn tracer(&self) -> &SdkTracer {
        &self.tracer
    }

    pub(crate) fn counts(&self) -> SpanCounts {
        self.outbox.counts()
    }

    pub(crate) fn finish(&self) {
        self.outbox.finish(LAST);
    }
}
