//! Decides what an error means for its request and its seat.

use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{Error, Kind, ObjectId, Scope, Uses};

use crate::clock;
use crate::core::Core;
use crate::job::RequestAttempts;
use crate::need::Need;
use crate::panics::or_panicked;
use crate::record::SeatConnection;

/// The least time between two renewed proofs of a seat with soft failures.
const SUSPICION_REST: Duration = Duration::from_secs(1);

/// The tries of a decryption: on some tokens a wrong padding looks like a failure of the token.
const SOFT_FAILURES_OF_DECRYPT: u32 = 2;

impl Core {
    /// The answer for the caller. `None`: the request is tried elsewhere.
    pub fn judge(
        self: &Arc<Self>,
        need: &Need,
        attempt: &mut RequestAttempts,
        connection: &Arc<SeatConnection>,
        error: Error,
    ) -> Option<Error> {
        attempt.tried.insert(connection.record.index);
        let lost_here = error.kind() == Kind::UnknownObject && need.owner().is_none();
        let error = error.at(&connection.record.name);
        if lost_here && !need.objects.is_empty() {
            self.object_lost(connection, need, &error);
            attempt.last = Some(error);
            // The operation was not started, so another replica may run it in any case.
            return None;
        }
        if error.scope() == Scope::Request {
            return Some(error);
        }
        let soft = error.scope() == Scope::Token && !error.ends_connection();
        if soft && need.unpads {
            // No second seat and no proof: their time would reveal whether the padding was good (Bleichenbacher).
            return Some(error.with_scope(Scope::Pool));
        }
        if soft {
            self.suspect(connection, need);
        }
        attempt.last = Some(error.clone());
        if soft
            && need
                .objects
                .iter()
                .any(|(_, uses)| uses.contains(Uses::DECRYPT))
        {
            attempt.soft += 1;
        }
        let final_answer = !need.repeatable || attempt.soft >= SOFT_FAILURES_OF_DECRYPT;
        final_answer.then(|| error.with_scope(Scope::Pool))
    }

    /// A seat has lost an object: it was deleted by others.
    fn object_lost(self: &Arc<Self>, connection: &Arc<SeatConnection>, need: &Need, error: &Error) {
        connection.record.note(error);
        let ids: Vec<_> = need.token_objects().collect();
        tracing::warn!(seat = %connection.record.name, "{error}; this replica leaves");
        if let [id] = ids[..] {
            self.lost_sight(connection, id);
        } else {
            // One of several is gone. Only reading the objects shows which.
            self.in_background(connection, |core, connection| {
                let _ = core.reread(connection, false);
            });
        }
    }

    /// A connection does not find an object. Its replica is removed, and the member's watcher finds out whether the
    /// token still has it.
    pub fn lost_sight(self: &Arc<Self>, connection: &SeatConnection, id: ObjectId) {
        let (index, generation) = (connection.record.index, connection.generation);
        self.publish(|registry| registry.lose(index, generation, &id));
        self.missed(connection, id);
    }

    /// The connection may be corrupted. It serves on, and proves the request's keys again.
    fn suspect(self: &Arc<Self>, connection: &Arc<SeatConnection>, need: &Need) {
        let now = clock::now();
        let mut suspected = connection.record.suspected.lock();
        if suspected.is_some_and(|last| now < last + SUSPICION_REST) {
            return;
        }
        let ids: Vec<_> = need.token_objects().collect();
        if ids.is_empty() {
            return;
        }
        *suspected = Some(now);
        drop(suspected);
        self.in_background(connection, move |core, connection| {
            core.prove(connection, &ids);
        });
    }

    /// Runs on a thread of its own, or on this one if the pool may not start threads.
    pub fn in_background(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
        task: impl FnOnce(&Arc<Self>, &Arc<SeatConnection>) + Send + 'static,
    ) {
        if !self.options.threads {
            return task(self, connection);
        }
        let core = Arc::clone(self);
        let connection_of_task = Arc::clone(connection);
        let name = format!("hsmux-{}", connection.record.name);
        let started = clock::spawn(name, move || {
            let done = or_panicked(|| {
                task(&core, &connection_of_task);
                Ok(())
            });
            // Callers would wait for proofs that are not made.
            if let Err(error) = done {
                core.down(&connection_of_task, &error);
            }
        });
        if let Err(error) = started {
            tracing::error!(seat = %connection.record.name, "no thread for a background task: {error}");
        }
    }
}
