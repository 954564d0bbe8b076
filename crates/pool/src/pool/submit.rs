//! Requests come in.

use std::sync::Arc;
use std::time::Instant;

use hsmux_token::{Batch, Operation, Outcome, Request, Result};
use hsmux_wire::together;

use super::Pool;
use crate::claim::{Asker, Claim};
use crate::course::Course;
use crate::guest::Home;
use crate::job::Job;

impl Pool {
    /// [`Token::submit`] of one request, which is given up where the claim is dropped while it waits; changes are
    /// carried out all the same. Its `course` is written down: of what is given to a seat of its own, and not of
    /// changes, which reach many.
    pub fn submit_claimed(&self, request: Request, course: Option<Arc<Course>>) -> Claim {
        together(|| self.submit_one(request, None, None, course))
    }

    /// [`Token::submit`] for a guest with this home and a connection that may end, or for nobody.
    pub(crate) fn submit_at(
        &self,
        batch: Batch,
        home: Option<&Arc<Home>>,
        asker: Option<&Arc<Asker>>,
    ) {
        let submit = || {
            for request in batch {
                self.submit_one(request, home, asker, None).keep();
            }
        };
        if self.core.options.threads {
            together(submit);
        } else {
            // Each runs on this thread, which waits for its answer.
            submit();
        }
    }

    fn submit_one(
        &self,
        request: Request,
        home: Option<&Arc<Home>>,
        asker: Option<&Arc<Asker>>,
        course: Option<Arc<Course>>,
    ) -> Claim {
        if let Err(refused) = request.operation.check() {
            request.done.complete(Err(refused));
        } else if request.operation.changes_token() {
            self.change_on_a_thread(request);
        } else if self.core.options.threads {
            let job = Job::new(request, home, asker, course);
            self.core.place(Arc::clone(&job));
            return Claim::on(&self.core, job);
        } else {
            let result = self.core.run(&request.operation, request.deadline, home);
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
