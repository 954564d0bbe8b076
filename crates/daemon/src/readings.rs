//! Readings of pool and audit trail, for the metrics of a service.

use hsmux_service::{Readings, SpanReadings};
use hsmux_token::{Blob, Result};

use crate::service::DaemonContext;

/// The readings at this moment, as they travel.
pub fn readings(of: &DaemonContext) -> Result<Blob> {
    let spans = of.traces.counts().map(|counts| SpanReadings {
        exported: counts.exported,
        dropped: counts.dropped,
        waiting: counts.waiting,
    });
    Readings {
        is_served: of.pool.catalogue().is_served(),
        traffic: of.pool.traffic(),
        audit: of.audit.status(),
        spans,
    }
    .to_json()
}
