//! What a pool is told at its start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hsmux_config::{Config, ENVELOPE_LIFE, LoneKeys, Policy};
use hsmux_token::Uri;

/// What a pool is told at its start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The label of the one token that applications see; its serial number follows from it.
    pub label: String,
    /// Which of several free seats gets a request.
    pub policy: Policy,
    /// How many operations may wait; past it: [`hsmux_token::Kind::Busy`].
    pub queue: usize,
    /// How long an operation may take where the caller does not say.
    pub deadline: Duration,
    /// True if the pool may start threads. Without, connections are made on the callers' threads.
    pub threads: bool,
    /// The folder of the intent journal and of the PIN breakers.
    pub state: PathBuf,
    /// The file for what secret keys have answered, by which their copies prove themselves while no other one serves;
    /// without, that is known as long as the pool lives.
    pub answers: Option<PathBuf>,
    /// How many members a new key has to reach.
    pub replicas: usize,
    /// The rule for new keys that cannot be copied.
    pub lone_keys: LoneKeys,
    /// How long a new key is kept for a member that is away, wrapped.
    pub envelope_life: Duration,
    /// True if every change of a token is refused.
    pub read_only: bool,
    /// Keys whose uses are counted by their tokens: they are proved when a person asks for it.
    pub counted: Vec<Uri>,
    /// True if keys of the broker are neither shown nor served.
    pub hides_broker_keys: bool,
    /// Members, or seats of them, that were parked before, and why: they stay so until [`crate::Pool::resume`].
    pub parked: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            label: "hsmux".into(),
            policy: Policy::default(),
            queue: 1024,
            deadline: Duration::from_secs(30),
            threads: true,
            state: PathBuf::from("/var/lib/hsmux"),
            answers: None,
            replicas: 1,
            lone_keys: LoneKeys::Made,
            envelope_life: ENVELOPE_LIFE,
            read_only: false,
            counted: Vec::new(),
            hides_broker_keys: false,
            parked: BTreeMap::new(),
        }
    }
}

impl From<&Config> for Options {
    /// What the configuration says. An application that embeds the pool may have no threads: then `threads` is to be
    /// changed.
    fn from(config: &Config) -> Self {
        let pool = &config.pool;
        Self {
            label: pool.label.clone(),
            policy: pool.policy,
            queue: pool.queue,
            deadline: pool.deadline,
            threads: true,
            state: config.state.clone(),
            answers: Some(config.state.join("answers")),
            replicas: pool.replicas,
            lone_keys: pool.lone_keys,
            envelope_life: pool.envelope_life,
            read_only: pool.read_only,
            hides_broker_keys: false,
            counted: pool.counted.clone(),
            parked: BTreeMap::new(),
        }
    }
}
