//! The synchronous path: the caller waits for a lane, and runs its operation there by itself.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use hsmux_token::{Error, Kind, ObjectRef, Operation, Outcome, Result};

use crate::client_session::Affinity;
use crate::clock;
use crate::core::{Acquired, Core};
use crate::dispatch::{localize, publish};
use crate::job::{Lane, Purpose, RequestAttempts, ScheduledWork, Waiter};
use crate::need::Need;
use crate::owner::Owner;
use crate::scheduler::Term;

thread_local! {
    static CHANGING: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread connects no seat: a seat that connects waits for the change of the
/// tokens that this thread carries out.
pub(crate) struct Changing(());

impl Changing {
    pub fn begin() -> Self {
        CHANGING.set(true);
        Self(())
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        CHANGING.set(false);
    }
}

impl Core {
    /// Runs an operation on this thread, on one seat after the other if it has to be.
    pub fn run(
        self: &Arc<Self>,
        operation: &Operation,
        deadline: Instant,
        affinity: Option<&Arc<Affinity>>,
    ) -> Result<Outcome> {
        let need = Need::at(operation, affinity, Owner::default());
        let term = Term {
            deadline,
            patience: need.patience,
            cost: need.cost,
        };
        let mut attempt = RequestAttempts::default();
        loop {
            let lane = self.wait_for_lane(&need, &attempt, term)?;
            match self.run_on(&lane, operation, term, Purpose::Request) {
                Ok(outcome) => return Ok(outcome),
                Err(error) => {
                    if let Some(error) = self.judge(&need, &mut attempt, &lane.connection, error) {
                        return Err(error);
                    }
                }
            }
        }
    }

    pub fn wait_for_lane(
        self: &Arc<Self>,
        need: &Need,
        attempt: &RequestAttempts,
        term: Term,
    ) -> Result<Lane> {
        self.stand_in_for_the_keeper();
        let mut waiter = None;
        let acquired = self.acquire(need, attempt, term, None, || {
            let made = Waiter::new(need.clone(), term, attempt.clone());
            ScheduledWork::Caller(Arc::clone(waiter.insert(made)))
        })?;
        match (acquired, waiter) {
            (Acquired::Granted(lane), _) => Ok(lane),
            (Acquired::Waiting(ticket), Some(waiter)) => {
                while clock::now() < term.deadline {
                    let again = self.stand_in_for_the_keeper();
                    if let Some(lane) = waiter.wait(again) {
                        return lane;
                    }
                }
                let still_waiting = self.scheduler.lock().cancel(ticket).is_some();
                // Not waiting and not given: the lane, or the refusal, is on its way.
                if still_waiting {
                    Err(self.too_late(need, attempt))
                } else {
                    waiter.take()
                }
            }
            (Acquired::Waiting(_), None) => Err(self.too_late(need, attempt)),
        }
    }

    /// Without a keeper's thread, lost seats are connected by those who need them; says when the
    /// next one may be.
    pub fn stand_in_for_the_keeper(self: &Arc<Self>) -> Option<Instant> {
        if self.options.threads || CHANGING.get() {
            return None;
        }
        let catalogue = self.catalogue.load();
        let all_here = catalogue.in_service == catalogue.expected;
        drop(catalogue);
        if all_here {
            return None;
        }
        self.reconnect_due(clock::now())
    }

    /// Runs an operation in a lane, and gives the lane back.
    pub fn run_on(
        self: &Arc<Self>,
        lane: &Lane,
        operation: &Operation,
        term: Term,
        purpose: Purpose,
    ) -> Result<Outcome> {
        let Lane {
            run_id,
            connection,
            since,
        } = lane;
        let limit = if self.options.threads {
            // The keeper ends what hangs.
            term.deadline
        } else {
            *since + connection.record.seat.timeout * term.patience
        };
        let local = local(operation, connection.generation);
        let mut result = local.and_then(|operation| {
            connection
                .token
                .execute(&operation, limit.min(term.deadline))
        });
        if let Err(error) = &result
            && !self.options.threads
            && error.kind() == Kind::Deadline
            && clock::now() >= limit
        {
            result = Err(Error::lost(format!(
                "{}: no answer within {:?}: the connection was ended",
                operation.call(),
                connection.record.seat.timeout
            )));
        }
        self.give_back(*run_id, connection, purpose, result.as_ref().err());
        let outcome = publish(result?, connection.generation);
        self.note_session_keys(operation, &outcome);
        Ok(outcome)
    }
}

/// The operation as the worker has to see it; copied only where it names session objects.
fn local(operation: &Operation, generation: u64) -> Result<Cow<'_, Operation>> {
    let of_session = |object: &ObjectRef| matches!(object, ObjectRef::Session(_));
    if !operation.objects().any(of_session) {
        return Ok(Cow::Borrowed(operation));
    }
    let mut operation = operation.clone();
    localize(&mut operation, generation)?;
    Ok(Cow::Owned(operation))
}
