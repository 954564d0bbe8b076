//! Direct connections to workers, for keys that a service uses often.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use hsmux_token::ObjectId;
use hsmux_wire::Backoff;

use crate::connector::DaemonConnector;

/// The most direct connections for one key.
const MOST_DIRECT: usize = 32;

/// The direct connections of a service.
pub(crate) struct DirectConnections {
    connector: Arc<DaemonConnector>,
    of_keys: HashMap<ObjectId, KeyConnections>,
}

/// The direct connections of a key.
#[derive(Default)]
struct KeyConnections {
    since: Option<Instant>,
    backoff: Backoff,
}

impl DirectConnections {
    /// Asks for nothing yet.
    pub fn new(connector: &Arc<DaemonConnector>) -> Self {
        Self {
            connector: Arc::clone(connector),
            of_keys: HashMap::new(),
        }
    }

    /// Forgets all keys but these.
    pub fn retain(&mut self, keys: &[ObjectId]) {
        self.of_keys.retain(|key, _| keys.contains(key));
    }

    /// Asks the daemon for up to `count` connections for the key, unless it has some, or the last ones ended or were
    /// refused a moment ago. Blocks.
    pub fn keep(&mut self, key: ObjectId, count: usize) {
        if self.connector.is_used_directly(&key) {
            return;
        }
        let direct = self.of_keys.entry(key).or_default();
        if let Some(since) = direct.since.take() {
            direct.backoff.ended(since.elapsed());
        }
        if !direct.backoff.is_over() {
            return;
        }
        match self.connector.connect_directly(key, count.min(MOST_DIRECT)) {
            Ok(()) => direct.since = Some(Instant::now()),
            Err(error) => {
                tracing::debug!(%error, %key, "no direct connections");
                direct.backoff.fail();
            }
        }
    }
}
