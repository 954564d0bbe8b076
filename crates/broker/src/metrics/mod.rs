//! Numbers for Prometheus: what requests, keys and tokens do.
//!
//! | file | one idea |
//! |---|---|
//! | `series` | counters of one key |
//! | `reason` | reasons of refusals, in few words |
//! | `scrape` | numbers of the pool and the trail, read at each scrape |
//! | `page` | `/metrics`, and who may read it |

mod page;
mod reason;
mod scrape;
mod series;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hsmux_token::{Error, Kind, Result};
use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

pub use page::{external, page};
pub use reason::Reason;
pub use series::{KeySeries, RunningOperation};

use series::MetricFamilies;

/// All that is counted.
pub struct Metrics {
    registry: Registry,
    families: Arc<MetricFamilies>,
    /// By the name of the key on the page. The map is replaced as a whole, so that a reader takes no lock.
    keys: ArcSwap<HashMap<Arc<str>, Arc<KeySeries>>>,
    /// Held while `keys` is changed.
    turn: Mutex<()>,
    /// The common series of all keys above the limit.
    others: Arc<KeySeries>,
    refusals: [IntCounter; Reason::ALL.len()],
    requests: IntGauge,
    connections: IntGauge,
    memory: IntGauge,
    accepted: IntCounter,
    floods: IntCounter,
    long_heads: IntCounter,
    lost_lines: IntCounter,
}

/// The limit of keys with series of their own: each operation of a key is some 20 lines of the page.
const MOST_KEYS: usize = 500;

/// The name of that series: no key has this name.
const OTHERS: &str = "*";

impl Metrics {
    /// Nothing is counted yet.
    pub fn new() -> Result<Self> {
        Self::build().map_err(|e| Error::pool(Kind::Environment, format!("metrics: {e}")))
    }

    fn build() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let families = Arc::new(MetricFamilies::register(&registry)?);
        let refusals = IntCounterVec::new(
            Opts::new(
                "hsmux_broker_refusals_total",
                "Requests that were refused, by reason.",
            ),
            &["reason"],
        )?;
        registry.register(Box::new(refusals.clone()))?;
        let gauge = |name, help| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let accepted = IntCounter::new(
            "hsmux_broker_connections_total",
            "Connections that were accepted.",
        )?;
        registry.register(Box::new(accepted.clone()))?;
        let closed = IntCounterVec::new(
            Opts::new(
                "hsmux_broker_closed_total",
                "Connections that were closed for what their client did, by reason.",
            ),
            &["reason"],
        )?;
        registry.register(Box::new(closed.clone()))?;
        let lost_lines = IntCounter::new(
            "hsmux_broker_access_log_lost_total",
            "Lines of the access log that were lost: there was no room, or they could not be written.",
        )?;
        registry.register(Box::new(lost_lines.clone()))?;
        Ok(Self {
            keys: ArcSwap::default(),
            turn: Mutex::new(()),
            others: Arc::new(KeySeries::new(OTHERS.into(), Arc::clone(&families))),
            refusals: Reason::ALL.map(|reason| refusals.with_label_values(&[reason.word()])),
            requests: gauge(
                "hsmux_broker_requests_in_flight",
                "Requests that are known and not answered yet.",
            )?,
            connections: gauge("hsmux_broker_connections", "Connections that are open.")?,
            accepted,
            floods: closed.with_label_values(&["flood"]),
            lost_lines,
            long_heads: closed.with_label_values(&["memory"]),
            memory: gauge(
                "hsmux_broker_memory_bytes",
                "Bytes of requests and of answers that clients have not taken yet.",
            )?,
            families,
            registry,
        })
    }

    /// The series of a key by its name on the page; `""` is the one without a key.
    pub fn of_key(&self, key: &str) -> Arc<KeySeries> {
        if let Some(known) = self.keys.load().get(key) {
            return Arc::clone(known);
        }
        let _turn = self.turn.lock();
        let keys = self.keys.load();
        if let Some(known) = keys.get(key) {
            return Arc::clone(known);
        }
        if keys.len() >= MOST_KEYS {
            return Arc::clone(&self.others);
        }
        let series = Arc::new(KeySeries::new(key.into(), Arc::clone(&self.families)));
        let mut more = HashMap::clone(&keys);
        more.insert(key.into(), Arc::clone(&series));
        self.keys.store(Arc::new(more));
        series
    }

    /// Removes the series of keys that are gone.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let _turn = self.turn.lock();
        let keys = self.keys.load();
        let (kept, gone): (HashMap<_, _>, Vec<_>) = {
            let (kept, gone): (Vec<_>, Vec<_>) =
                keys.iter().partition(|(key, _)| is_there(key.as_ref()));
            let owned = kept.into_iter().map(|(key, of)| (key.clone(), of.clone()));
            (owned.collect(), gone)
        };
        if gone.is_empty() {
            return;
        }
        for (_, series) in &gone {
            series.take_away();
        }
        self.keys.store(Arc::new(kept));
    }

    /// A request was refused.
    pub fn refused(&self, reason: Reason) {
        self.refusals[reason as usize].inc();
    }

    /// Counts lost lines of the access log.
    pub fn count_lost_lines(&self) -> impl Fn(u64) + Send + Sync + use<> {
        let lost_lines = self.lost_lines.clone();
        move |lines| lost_lines.inc_by(lines)
    }

    /// A request is in flight for as long as this lives.
    pub fn request(&self) -> GaugeGuard {
        GaugeGuard::new(&self.requests)
    }

    /// A connection was closed because its client had sent too many small frames.
    pub fn flooded(&self) {
        self.floods.inc();
    }

    /// A connection was closed because no memory was left for its head.
    pub fn no_memory(&self) {
        self.long_heads.inc();
    }

    /// Requests and answers hold so many bytes.
    pub fn hold(&self, bytes: usize) {
        self.memory.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// A connection is open for as long as this lives.
    pub fn connection(&self) -> GaugeGuard {
        self.accepted.inc();
        GaugeGuard::new(&self.connections)
    }
}

/// Counts one as long as this lives.
pub struct GaugeGuard(IntGauge);

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

#[cfg(test)]
mod tests {
    use super::*;

    fn page(metrics: &Metrics) -> String {
        prometheus::TextEncoder::new()
            .encode_to_string(&metrics.registry.gather())
            .unwrap()
    }

    #[test]
    fn keys_beyond_the_limit_share_their_series() {
        let metrics = Metrics::new().unwrap();
        for number in 0..MOST_KEYS + 20 {
            let series = metrics.of_key(&format!("key-{number}"));
            drop(series.begin("encrypt"));
        }
        let text = page(&metrics);
        let lines = text
            .lines()
            .filter(|line| line.starts_with("hsmux_broker_operations_total"));
        assert_eq!(lines.count(), MOST_KEYS + 1);
        let others = r#"hsmux_broker_operations_total{key="*",operation="encrypt"} 20"#;
        assert!(text.contains(others), "{text}");
    }

    #[test]
    fn keys_that_are_gone_leave_nothing() {
        let metrics = Metrics::new().unwrap();
        for key in ["stays", "goes"] {
            drop(metrics.of_key(key).begin("sign"));
        }
        metrics.retain(|key| key == "stays");
        let text = page(&metrics);
        assert!(text.contains("stays") && !text.contains("goes"), "{text}");
    }
}
