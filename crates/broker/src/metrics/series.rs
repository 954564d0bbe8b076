//! The counters of one key; an operation costs a few atomic additions.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hsmux_pool::Spread;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use super::Reason;

/// The metric families of all keys.
pub struct MetricFamilies {
    operations: IntCounterVec,
    errors: IntCounterVec,
    seconds: HistogramVec,
    in_flight: IntGaugeVec,
}

impl MetricFamilies {
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let bounds = Spread::BOUNDS_US.map(|us| Duration::from_micros(us).as_secs_f64());
        let families = Self {
            operations: IntCounterVec::new(
                Opts::new(
                    "hsmux_broker_operations_total",
                    "Operations with a key that have ended, well or not; each item of a batch is one.",
                ),
                &["key", "operation"],
            )?,
            errors: IntCounterVec::new(
                Opts::new(
                    "hsmux_broker_errors_total",
                    "Those of them that failed, by reason.",
                ),
                &["key", "operation", "reason"],
            )?,
            seconds: HistogramVec::new(
                HistogramOpts::new(
                    "hsmux_broker_operation_seconds",
                    "From an operation's begin to its end, with its time in the queue.",
                )
                .buckets(bounds.to_vec()),
                &["key", "operation"],
            )?,
            in_flight: IntGaugeVec::new(
                Opts::new(
                    "hsmux_broker_operations_in_flight",
                    "Operations with a key that wait for a token or run.",
                ),
                &["key"],
            )?,
        };
        registry.register(Box::new(families.operations.clone()))?;
        registry.register(Box::new(families.errors.clone()))?;
        registry.register(Box::new(families.seconds.clone()))?;
        registry.register(Box::new(families.in_flight.clone()))?;
        Ok(families)
    }
}

/// The counted operations, by their names on the audit trail.
const OPERATIONS: [&str; 10] = [
    "encrypt", "decrypt", "rewrap", "datakey", "sign", "verify", "hmac", "csr", "random", "hash",
];

/// The counters of one key.
pub struct KeySeries {
    key: Arc<str>,
    families: Arc<MetricFamilies>,
    in_flight: IntGauge,
    /// One for each operation, from its first use on.
    of: [OnceLock<OperationSeries>; OPERATIONS.len()],
}

struct OperationSeries {
    count: IntCounter,
    seconds: Histogram,
}

impl KeySeries {
    /// Nothing is counted yet.
    pub fn new(key: Arc<str>, families: Arc<MetricFamilies>) -> Self {
        Self {
            in_flight: families.in_flight.with_label_values(&[&*key]),
            of: [const { OnceLock::new() }; OPERATIONS.len()],
            key,
            families,
        }
    }

    /// An operation begins.
    pub fn begin(&self, operation: &'static str) -> RunningOperation<'_> {
        self.in_flight.inc();
        RunningOperation {
            series: self,
            operation,
            begun: Instant::now(),
            outcome: Err(Reason::Gone),
        }
    }

    fn end(&self, running: &RunningOperation<'_>) {
        self.in_flight.dec();
        let word = running.operation;
        if let Some(at) = OPERATIONS.iter().position(|known| *known == word) {
            let of = self.of[at].get_or_init(|| OperationSeries {
                count: self
                    .families
                    .operations
                    .with_label_values(&[&*self.key, word]),
                seconds: self.families.seconds.with_label_values(&[&*self.key, word]),
            });
            of.count.inc();
            of.seconds.observe(running.begun.elapsed().as_secs_f64());
        }
        if let Err(reason) = running.outcome {
            let labels = [&*self.key, word, reason.word()];
            self.families.errors.with_label_values(&labels).inc();
        }
    }

    /// Takes it off the page.
    pub fn take_away(&self) {
        let families = &self.families;
        // A series that does not exist needs no removal.
        let _ = families.in_flight.remove_label_values(&[&*self.key]);
        for operation in OPERATIONS {
            let labels = [&*self.key, operation];
            let _ = families.operations.remove_label_values(&labels);
            let _ = families.seconds.remove_label_values(&labels);
            for reason in Reason::ALL {
                let labels = [&*self.key, operation, reason.word()];
                let _ = families.errors.remove_label_values(&labels);
            }
        }
    }
}

/// An operation under way; it is counted when this is dropped.
pub struct RunningOperation<'a> {
    series: &'a KeySeries,
    operation: &'static str,
    /// When it began.
    pub begun: Instant,
    /// The outcome. Dropping this without one means that the client has gone.
    pub outcome: Result<(), Reason>,
}

impl Drop for RunningOperation<'_> {
    fn drop(&mut self) {
        self.series.end(self);
    }
}
