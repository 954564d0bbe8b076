//! Submission of requests.

use std::sync::Arc;
use std::time::Instant;

use hsmux_token::{Estimate, ObjectId, Operation, Outcome, Request, Result};

use super::Pool;
use crate::Owner;
use crate::claim::{Claim, Requester};
use crate::client_session::Affinity;
use crate::clock;
use crate::job::{Ask, Job};
use crate::request_timing::RequestTiming;
use crate::seatset::SeatSet;

impl Pool {
    /// [`Token::submit`] of one request. Dropping the claim while the request waits cancels it, unless it is a change.
    /// If it runs on a seat of a service's pool, the daemon is asked to cancel it. `timing` records the runs on seats. A
    /// change has no timing, because it reaches many seats.
    pub fn submit_claimed(
        &self,
        request: Request,
        owner: Owner,
        timing: Option<Arc<RequestTiming>>,
    ) -> Claim {
        let ask = Ask {
            owner,
            timing,
            ..Ask::default()
        };
        self.submit_one(request, ask)
    }

    /// Estimates the wait of a use of this key from now, by the recent speed of its members.
    pub fn estimate(&self, key: &ObjectId) -> Estimate {
        let catalogue = self.core.catalogue.load();
        let serving = catalogue.entries.get(key).map(|entry| entry.serving);
        let able = serving.unwrap_or(SeatSet::EMPTY).and(&catalogue.in_service);
        self.core.scheduler.lock().estimate(&able, clock::now())
    }

    /// [`Token::submit`] for a client session's connection, or for neither.
    pub(crate) fn submit_at(
        &self,
        batch: impl IntoIterator<Item = (Request, Option<Arc<RequestTiming>>)>,
        affinity: Option<&Arc<Affinity>>,
        requester: Option<&Arc<Requester>>,
    ) {
        for (request, timing) in batch {
            let ask = Ask {
                affinity,
                requester,
                timing,
                ..Ask::default()
            };
            self.submit_one(request, ask).keep();
        }
    }

    fn submit_one(&self, request: Request, ask: Ask<'_>) -> Claim {
        if let Err(refused) = request.operation.check() {
            request.done.complete(Err(refused));
        } else if request.operation.changes_token() {
            let owner = ask.affinity.map_or(ask.owner, |affinity| affinity.owner);
            self.change_on_a_thread(request, owner);
        } else if self.core.options.threads {
            let job = Job::new(request, ask);
            self.core.place(Arc::clone(&job));
            return Claim::on(&self.core, job);
        } else {
            let result = self
                .core
                .run(&request.operation, request.deadline, ask.affinity);
            request.done.complete(result);
        }
        Claim::none()
    }

    /// [`Token::execute`] in the same way.
    pub(crate) fn execute_at(
        &self,
        operation: &Operation,
        deadline: Instant,
        affinity: Option<&Arc<Affinity>>,
    ) -> Result<Outcome> {
        operation.check()?;
        if operation.changes_token() {
            self.refuse_change(operation)?;
            return self.change(operation.clone(), deadline);
        }
        self.core.run(operation, deadline, affinity)
    }
}
