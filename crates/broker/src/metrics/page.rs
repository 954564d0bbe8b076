//! `/metrics`, and who may read it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use axum::response::Response;
use hsmux_config::Action;
use hsmux_service::SpanReadings;
use hsmux_token::{Error, Kind, ObjectId};
use hsmux_traces::SpanCounts;
use prometheus::{TEXT_FORMAT, TextEncoder};

use crate::Broker;
use crate::http::{self, ApiCall};
use crate::refusal::Refusal;

/// The name of an external key on the page. It is the beginning of the name that `hsmux key list` shows, however a
/// client names the key.
const EXTERNAL: &str = "object:";

/// The name of such a key on the page.
pub fn external(object: &ObjectId) -> String {
    format!("{EXTERNAL}{}", hex::encode(&object.name[..8]))
}

/// `/metrics`: for clients on this machine's socket or with that right, or for everybody if the configuration says
/// so.
pub async fn page(call: ApiCall) -> Result<Response, Refusal> {
    let broker = Arc::clone(call.broker());
    let open = broker.open_metrics.load(Ordering::Relaxed);
    if !open && !call.client().is_local() {
        call.may(Action::Metrics)?;
    }
    // Long where there are many keys.
    let written = tokio::task::spawn_blocking(move || write(&broker)).await;
    let failed = |why: String| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why);
    let text = written.map_err(|e| failed(e.to_string()))??;
    Ok(http::text(TEXT_FORMAT, text))
}

fn write(broker: &Broker) -> hsmux_token::Result<String> {
    let (metrics, keyring) = (&broker.metrics, broker.engine.keyring());
    let catalogue = broker.engine.pool().catalogue();
    let visible = catalogue.entries.values().filter(|entry| entry.visible());
    let external: HashSet<_> = visible
        .map(|entry| entry.object.id.name[..8].to_vec())
        .collect();
    metrics.retain(|key| match key.strip_prefix(EXTERNAL) {
        Some(name) => hex::decode(name).is_ok_and(|name| external.contains(&name)),
        None => key.is_empty() || keyring.get(key).is_some(),
    });
    metrics.hold(broker.usage.load().memory());
    let mut families = metrics.registry.gather();
    let mut daemon = (broker.readings)()?;
    let own = broker.engine.pool().traffic();
    daemon.traffic.waiting += own.waiting;
    daemon.traffic.changes += own.changes;
    let spans = broker.traces.counts().map(|own| with(own, daemon.spans));
    families.extend(super::scrape::families(&daemon, spans, broker.trust.age()));
    let text = TextEncoder::new().encode_to_string(&families);
    text.map_err(|error| Error::pool(Kind::Environment, error.to_string()))
}

/// The spans of this process and of the daemon, which sends those of operations.
fn with(own: SpanCounts, daemon: Option<SpanReadings>) -> SpanCounts {
    daemon.map_or(own, |daemon| SpanCounts {
        exported: own.exported + daemon.exported,
        dropped: own.dropped + daemon.dropped,
        waiting: own.waiting + daemon.waiting,
    })
}
