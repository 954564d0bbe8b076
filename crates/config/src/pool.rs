//! `[pool]`: the pool of all members, and how it distributes work and keys.

use std::time::Duration;

use hsmux_token::Uri;
use serde::{Deserialize, Serialize};

/// `[pool]`.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolSection {
    /// The one token's label.
    pub label: String,
    /// How workers are chosen.
    pub policy: Policy,
    /// Whether every listener is read-only.
    pub read_only: bool,
    /// Operations that may wait.
    pub queue: usize,
    /// How long an operation may take.
    pub deadline: Duration,
    /// How many members a new object must reach at once.
    pub replicas: usize,
    /// The rule for new keys without a usable copy.
    pub lone_keys: LoneKeys,
    /// How long the journal keeps a wrapped new key for a member that is away.
    pub envelope_life: Duration,
    /// Keys with a use counter.
    pub counted: Vec<Uri>,
    /// Whether members are watched by default.
    pub watch: bool,
}

/// How a request gets one of several free workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The one with the least latency × (pending + 1) / weight.
    #[default]
    LeastLoaded,
    /// In turn, in proportion to their weights.
    RoundRobin,
    /// The first in the order of the configuration.
    FirstAvailable,
}

/// The rule for new keys that cannot be copied: no member exports them even wrapped, or hsmux cannot prove the copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoneKeys {
    /// It is created on one member, and its copies are missing.
    Made,
    /// It is refused, unless one replica is enough.
    Refused,
}

/// The default of `envelope_life`: a week is enough for a repair, and old copies of the state folder
/// lose their value soon.
pub const ENVELOPE_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
