//! Metrics of the gateway, and their page.

use std::sync::Arc;
use std::time::Instant;

use hsmux_token::{Error, Kind, Result};
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};

use crate::file_budget::FileBudget;
use crate::lifetime;
use crate::memory::MemoryBudget;
use crate::site_metrics;
use crate::sites::Sites;

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// All metrics.
pub struct Metrics {
    registry: Registry,
    connections: IntGauge,
    handshaking: IntGauge,
    handshakes: IntCounterVec,
    refused: IntCounterVec,
    signing: IntGauge,
    signatures: IntCounterVec,
    unsigned: IntCounter,
    seconds: Histogram,
    /// By the class of their answer, from 1xx on.
    requests: [IntCounter; CLASSES.len()],
    plain: IntCounterVec,
    tickets: IntGauge,
    files: IntGauge,
    memory: IntGauge,
    closed: IntCounterVec,
    lost_lines: IntCounter,
}

/// Counts one in a gauge until this is dropped.
pub struct GaugeGuard(IntGauge);

/// Measures the wait for a signature.
pub struct SignatureTimer {
    metrics: Arc<Metrics>,
    algorithm: &'static str,
    since: Instant,
    _held: GaugeGuard,
}

/// Why a connection was refused or given up.
#[derive(Clone, Copy, Debug)]
pub enum RefusalReason {
    Connections,
    Handshakes,
    Files,
    Source,
    Proxy,
    ProxyFrom,
    PlainHttp,
    Slow,
    Busy,
    Unsigned,
    Tls,
    Backend,
}

/// Why a connection that served something was closed.
#[derive(Clone, Copy, Debug)]
pub enum CloseReason {
    /// It was stalled, and others needed its memory.
    Memory,
    /// It has sent too many small frames of HTTP/2.
    Flood,
    /// It was idle, and an address with fewer connections had no slot.
    Idle,
}

/// The kind of answer to a request without TLS.
#[derive(Clone, Copy, Debug)]
pub enum PlainAnswer {
    Challenge,
    NoChallenge,
    Redirect,
    Refused,
}

impl Metrics {
    /// New metrics.
    pub fn new() -> Result<Arc<Self>> {
        let failed = |e| Error::pool(Kind::Environment, format!("metrics: {e}"));
        Self::build().map(Arc::new).map_err(failed)
    }

    fn build() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(format!("hsmux_gateway_{name}"), help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let opts = Opts::new(format!("hsmux_gateway_{name}_total"), help);
            let counters = IntCounterVec::new(opts, labels)?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let unsigned = IntCounter::new(
            "hsmux_gateway_signatures_failed_total",
            "Handshakes that no token has signed for.",
        )?;
        registry.register(Box::new(unsigned.clone()))?;
        let lost_lines = IntCounter::new(
            "hsmux_gateway_access_log_lost_total",
            "Lines of the access log that were lost: there was no room, or they could not be written.",
        )?;
        registry.register(Box::new(lost_lines.clone()))?;
        let seconds = HistogramOpts::new(
            "hsmux_gateway_signature_seconds",
            "How long handshakes have waited for signatures of the pool.",
        );
        let bounds = [
            0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
        ];
        let seconds = Histogram::with_opts(seconds.buckets(bounds.to_vec()))?;
        registry.register(Box::new(seconds.clone()))?;
        Ok(Self {
            connections: gauge("connections", "Connections of clients that are open.")?,
            handshaking: gauge("handshakes_in_flight", "Handshakes under way.")?,
            signing: gauge(
                "signatures_waiting",
                "Those of them that wait for a signature of the pool.",
            )?,
            files: gauge(
                "files_left",
                "Files that are left for connections, and for what is behind them.",
            )?,
            memory: gauge(
                "memory_bytes",
                "Bytes that requests and bodies of clients hold.",
            )?,
            closed: counters(
                "closed",
                "Connections that were closed before their client or a time limit had ended them.",
                &["reason"],
            )?,
            tickets: gauge(
                "ticket_key_since_seconds",
                "Since when tickets have the newest key that hosts share, in seconds of Unix time; 0: they share none.",
            )?,
            plain: counters(
                "plain_requests",
                "Requests without TLS, by what they were given.",
                &["answer"],
            )?,
            handshakes: counters(
                "handshakes",
                "Handshakes that have succeeded.",
                &["version", "kind"],
            )?,
            refused: counters(
                "refused",
                "Connections that were refused or given up before they served anything.",
                &["reason"],
            )?,
            signatures: counters(
                "signatures",
                "Signatures of the pool for handshakes.",
                &["algorithm"],
            )?,
            requests: {
                let by_class = counters(
                    "requests",
                    "Requests by the class of their answer.",
                    &["class"],
                )?;
                CLASSES.map(|class| by_class.with_label_values(&[class]))
            },
            registry,
            unsigned,
            seconds,
            lost_lines,
        })
    }

    /// A connection is open.
    pub fn connection(&self) -> GaugeGuard {
        GaugeGuard::new(&self.connections)
    }

    /// A handshake is under way.
    pub fn handshaking(&self) -> GaugeGuard {
        GaugeGuard::new(&self.handshaking)
    }

    /// A handshake has succeeded.
    pub fn handshake(&self, version: &str, resumed: bool) {
        let kind = if resumed { "resumed" } else { "full" };
        self.handshakes.with_label_values(&[version, kind]).inc();
    }

    /// A connection was refused.
    pub fn refused(&self, why: RefusalReason) {
        self.refused.with_label_values(&[why.word()]).inc();
    }

    /// A connection was closed.
    pub fn closed(&self, why: CloseReason) {
        let reason = match why {
            CloseReason::Memory => "memory",
            CloseReason::Flood => "flood",
            CloseReason::Idle => "idle",
        };
        self.closed.with_label_values(&[reason]).inc();
    }

    /// Lines of the access log were lost.
    pub fn lost_lines(&self, lines: u64) {
        self.lost_lines.inc_by(lines);
    }

    /// A request has had an answer with this status.
    pub fn request(&self, status: u16) {
        let class = usize::from(status / 100).saturating_sub(1);
        self.requests[class.min(CLASSES.len() - 1)].inc();
    }

    /// A request without TLS has had an answer.
    pub fn plain(&self, answer: PlainAnswer) {
        self.plain.with_label_values(&[answer.word()]).inc();
    }

    /// A signature is asked for.
    pub fn signature(self: &Arc<Self>, algorithm: &'static str) -> SignatureTimer {
        SignatureTimer {
            metrics: Arc::clone(self),
            algorithm,
            since: Instant::now(),
            _held: GaugeGuard::new(&self.signing),
        }
    }

    /// Tickets have a new key, of this time.
    pub fn ticket_keys(&self, since: u64) {
        self.tickets.set(since.cast_signed());
    }

    /// The page of metrics, with those of these sites.
    pub fn page(&self, sites: &Sites, files: &FileBudget, memory: &MemoryBudget) -> String {
        self.memory
            .set(i64::try_from(memory.used() + memory.heads().taken()).unwrap_or(i64::MAX));
        self.files
            .set(i64::try_from(files.left()).unwrap_or(i64::MAX));
        let mut families = self.registry.gather();
        families.extend(site_metrics::of(sites, lifetime::now()).unwrap_or_default());
        TextEncoder::new()
            .encode_to_string(&families)
            .unwrap_or_default()
    }
}

impl GaugeGuard {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl SignatureTimer {
    /// Records the outcome. Returns the signature, if there is one.
    pub fn ended<T>(self, result: Result<T>) -> Option<T> {
        match result {
            Ok(signature) => {
                let signatures = &self.metrics.signatures;
                signatures.with_label_values(&[self.algorithm]).inc();
                self.metrics
                    .seconds
                    .observe(self.since.elapsed().as_secs_f64());
                Some(signature)
            }
            Err(error) => {
                self.metrics.unsigned.inc();
                tracing::warn!(%error, "a handshake has no signature");
                None
            }
        }
    }
}

impl PlainAnswer {
    fn word(self) -> &'static str {
        match self {
            Self::Challenge => "challenge",
            Self::NoChallenge => "no-challenge",
            Self::Redirect => "redirect",
            Self::Refused => "refused",
        }
    }
}

impl RefusalReason {
    fn word(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Handshakes => "handshakes",
            Self::Files => "files",
            Self::Source => "source",
            Self::Proxy => "proxy-header",
            Self::ProxyFrom => "proxy-address",
            Self::PlainHttp => "plain-http",
            Self::Slow => "slow",
            Self::Busy => "busy",
            Self::Unsigned => "unsigned",
            Self::Tls => "tls",
            Self::Backend => "backend",
        }
    }
}
