//! Requests come in.

use std::sync::Arc;
use std::time::Instant;

use hsmux_token::{Estimate, ObjectId, Operation, Outcome, Request, Result};
use hsmux_wire::together;

use super::Pool;
use crate::Owner;
use crate::claim::{Asker, Claim};
use crate::course::Course;
use crate::dispatch::Thread;
use crate::guest::Home;
use crate::job::{Ask, Job};
use crate::seatset::SeatSet;

/// How many threads a service has that calls [`Pool::submit_claimed`] on them: one more than operations run on the
/// callers' threads at once, so that one is left where tokens do not return from their calls.
pub fn serving_threads() -> usize {
    hsmux_module::most_here() + 1
}

impl Pool {
    /// [`Token::submit`] of one request, which is given up where the claim is dropped while it waits; changes are
    /// carried out all the same. Its `course` is written down: of what is given to a seat of its own, and not of
    /// changes, which reach many.
    ///
    /// Called on one of [`serving_threads`]: work that is shorter than a hand-over to another
    /// thread may run on this one.
    pub fn submit_claimed(
        &self,
        request: Request,
        owner: Owner,
        course: Option<Arc<Course>>,
    ) -> Claim {
        let ask = Ask {
            owner,
            course,
            thread: Thread::Callers,
            ..Ask::default()
        };
        together(|| self.submit_one(request, ask))
    }

    /// [`Self::submit_claimed`] on a thread that has other things to do.
    pub fn submit_behind(&self, request: Request, owner: Owner) -> Claim {
        let ask = Ask {
            owner,
            ..Ask::default()
        };
        self.submit_one(request, ask)
    }

    /// What a use of this key would have to wait for that came now, by what its members have shown lately.
    pub fn estimate(&self, key: &ObjectId) -> Estimate {
        let catalogue = self.core.catalogue.load();
        let serving = catalogue.entries.get(key).map(|entry| entry.serving);
        let able = serving.unwrap_or(SeatSet::EMPTY).and(&catalogue.in_service);
        self.core.scheduler.lock().estimate(&able, Instant::now())
    }

    /// [`Token::submit`] for a guest with this home and a connection that may end, or for nobody.
    pub(crate) fn submit_at(
        &self,
        batch: impl IntoIterator<Item = (Request, Option<Arc<Course>>)>,
        home: Option<&Arc<Home>>,
        asker: Option<&Arc<Asker>>,
    ) {
        let submit = || {
            for (request, course) in batch {
                let ask = Ask {
                    home,
                    asker,
                    course,
                    ..Ask::default()
                };
                self.submit_one(request, ask).keep();
            }
        };
        if self.core.options.threads {
            together(submit);
        } else {
            // Each runs on this thread, which waits for its answer.
            submit();
        }
    }

    fn submit_one(&self, request: Request, ask: Ask<'_>) -> Claim {
        if let Err(refused) = request.operation.check() {
            request.done.complete(Err(refused));
        } else if request.operation.changes_token() {
            let owner = ask.home.map_or(ask.owner, |home| home.owner);
            self.change_on_a_thread(request, owner);
        } else if self.core.options.threads {
            let thread = ask.thread;
            let job = Job::new(request, ask);
            self.core.place(Arc::clone(&job), thread);
            return Claim::on(&self.core, job);
        } else {
            let result = self
                .core
                .run(&request.operation, request.deadline, ask.home);
            request.done.complete(result);
        }
        Claim::none()
    }

    /// [`Token::execute`] in the same way.
    pub(crate) fn execute_at(
        &self,
        operation: &Operation,
        deadline: Instant,
        home: Option<&Arc<Home>>,
    ) -> Result<Outcome> {
        operation.check()?;
        if operation.changes_token() {
            self.refuse_change(operation)?;
            return self.change(operation.clone(), deadline);
        }
        self.core.run(operation, deadline, home)
    }
}
