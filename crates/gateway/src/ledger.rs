//! What the gateway does with keys of the pool, as the audit trail has it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use hsmux_audit::{Actor, Event, Trail};
use hsmux_pool::Pool;
use hsmux_token::{Operation, Result, ck};

/// A use of a key that is under way: a line, however it ends.
pub struct Line {
    trail: Arc<Trail>,
    event: Option<Event>,
    since: Instant,
}

impl Line {
    /// The line of an operation that is about to be asked for, for this client perhaps; `None` where uses of keys have
    /// none. After an error it must not be asked for.
    pub fn open(
        trail: &Arc<Trail>,
        pool: &Pool,
        operation: &Operation,
        client: Option<SocketAddr>,
    ) -> Result<Option<Self>> {
        if !trail.wants_uses() {
            return Ok(None);
        }
        trail.admit()?;
        let event = operation.key_use().map(|(_, key, mechanism, _)| {
            let catalogue = pool.catalogue();
            let object = catalogue.get(&key).map(|entry| &entry.object.attributes);
            let label = object.and_then(|object| object.text(ck::CKA_LABEL));
            Event::key_use(&actor(client), operation.call(), key.to_string())
                .label(label)
                .mechanism(Some(mechanism.name().into_owned()))
        });
        Ok(Some(Self {
            trail: Arc::clone(trail),
            event,
            since: Instant::now(),
        }))
    }

    /// It has its answer.
    pub fn ended<T>(mut self, result: &Result<T>) {
        self.write(result.as_ref().err().map(ToString::to_string));
    }

    fn write(&mut self, outcome: Option<String>) {
        let Some(event) = self.event.take() else {
            return;
        };
        let event = event.took(self.since.elapsed().as_micros() as u64);
        self.trail.record(match outcome {
            Some(outcome) => event.outcome(outcome),
            None => event,
        });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.write(Some("given up".into()));
    }
}

/// The gateway itself, and for whom.
fn actor(client: Option<SocketAddr>) -> Arc<Actor> {
    Arc::new(Actor {
        actor: Some("gateway".into()),
        peer: client.map(|client| client.to_string()),
        ..Actor::default()
    })
}
