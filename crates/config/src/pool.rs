//! `[pool]`: what the pool of all members is, and how it spreads work and keys.

use std::time::Duration;

use hsmux_token::Uri;
use serde::{Deserialize, Serialize};

/// `[pool]`.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolSection {
    /// The one token's label.
    pub label: String,
    /// Who is given an operation.
    pub policy: Policy,
    /// Whether every listener is read-only.
    pub read_only: bool,
    /// Operations that may wait.
    pub queue: usize,
    /// How long one may take.
    pub deadline: Duration,
    /// How many members a new object must reach at once.
    pub replicas: usize,
    /// The rule for new keys that cannot be copied.
    pub lone_keys: LoneKeys,
    /// How long a new key is kept for a member that is away, wrapped.
    pub envelope_life: Duration,
    /// Keys with a use counter.
    pub counted: Vec<Uri>,
    /// Whether members are watched that do not say otherwise.
    pub watch: bool,
}

/// Which of several free seats gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The one with the least latency × (pending + 1) / weight.
    #[default]
    LeastLoaded,
    /// One after the other, each as often as its weight says.
    RoundRobin,
    /// The first in the order of the configuration.
    FirstAvailable,
}

/// The rule for new keys that cannot be copied: no member lets them out even wrapped, or hsmux could not prove the copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoneKeys {
    /// It is made on one member, and its copies are missing.
    Made,
    /// It is made nowhere, unless one replica is enough.
    Refused,
}

/// How long a new key is kept for a member that is away, wrapped, where the configuration does not say: a week is
/// enough for a repair, and an old copy of the state folder is worth nothing for longer.
pub const ENVELOPE_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
