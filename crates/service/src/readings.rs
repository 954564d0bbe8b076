//! Readings of the daemon's pool and audit trail, for metrics and health checks of a service.

use hsmux_audit::TrailStatus;
use hsmux_pool::Traffic;
use hsmux_token::{Blob, Error, Result};
use serde::{Deserialize, Serialize};

/// Readings of the daemon at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Readings {
    /// True if a member of its pool serves.
    pub is_served: bool,
    /// Its pool.
    pub traffic: Traffic,
    /// Its audit trail.
    pub audit: TrailStatus,
    /// Its spans, if it makes some.
    pub spans: Option<SpanReadings>,
}

/// Numbers of spans.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SpanReadings {
    /// The collector has taken them.
    pub exported: u64,
    /// They were lost.
    pub dropped: u64,
    /// They are still to be sent.
    pub waiting: usize,
}

impl Readings {
    /// As they travel.
    pub fn to_json(&self) -> Result<Blob> {
        let json = serde_json::to_vec(self).map_err(|error| Error::protocol(error.to_string()))?;
        Ok(json.into())
    }

    /// From the daemon.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json).map_err(|error| Error::protocol(format!("readings: {error}")))
    }
}
