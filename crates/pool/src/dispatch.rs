//! The asynchronous path: a request waits without a thread, and is completed on the token's thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hsmux_token::{Batch, Done, Error, ObjectRef, Operation, Outcome, Request, Result, Scope};
use smallvec::SmallVec;

use crate::claim::cancelled;
use crate::clock;
use crate::core::{Acquired, Core};
use crate::job::{Job, Lane, Purpose, ScheduledWork};
use crate::record::SeatConnection;
use crate::scheduler::{RunId, RunOutcome};

/// The keeper answers who has waited long enough, and ends what hangs; a token's own deadline is only behind that.
const BEHIND_THE_KEEPER: Duration = Duration::from_secs(1);

/// Later than the keeper ends any worker.
const NEVER: Duration = Duration::from_secs(24 * 3600);

thread_local! {
    /// While this thread is inside of a start: others that are put off until it is done. A token may
    /// complete at once, which starts the next waiting request, and so on: this keeps the stack flat.
    static PUT_OFF: RefCell<Option<VecDeque<Start>>> = const { RefCell::new(None) };
}

struct Start {
    core: Arc<Core>,
    lane: Lane,
    job: Arc<Job>,
}

impl Start {
    fn run(self) {
        self.core.submit_to(self.lane, &self.job);
    }
}

/// Also when a token panics, later starts on this thread are not put off for ever.
struct OutsideAgain;

impl Drop for OutsideAgain {
    fn drop(&mut self) {
        let left = PUT_OFF.take();
        drop(left);
    }
}

impl Core {
    /// Looks for a seat; the answer comes by completion.
    pub fn place(self: &Arc<Self>, job: Arc<Job>) {
        let work = ScheduledWork::Job(Arc::clone(&job));
        let attempt = job.attempt.lock().clone();
        let acquired = self.acquire(&job.need, &attempt, job.term, Some(&work), || work.clone());
        match acquired {
            Ok(Acquired::Granted(lane)) => self.start(lane, job),
            Ok(Acquired::Waiting(ticket)) => {
                if !job.waits(ticket) && self.scheduler.lock().cancel(ticket).is_some() {
                    job.complete(Err(cancelled()));
                }
            }
            Err(error) => job.complete(Err(error)),
        }
    }

    /// Starts what has waited.
    pub fn hand_out(self: &Arc<Self>, grants: impl IntoIterator<Item = (Lane, ScheduledWork)>) {
        for (lane, work) in grants {
            let record = &lane.connection.record;
            self.alarm.by(lane.since + record.seat.timeout);
            match work {
                ScheduledWork::Job(job) => self.start(lane, job),
                ScheduledWork::Caller(waiter) => waiter.give(Ok(lane)),
            }
        }
    }

    fn start(self: &Arc<Self>, lane: Lane, job: Arc<Job>) {
        let start = Start {
            core: Arc::clone(self),
            lane,
            job,
        };
        let mut next = PUT_OFF.with_borrow_mut(|put_off| {
            if let Some(others) = put_off {
                others.push_back(start);
                None
            } else {
                *put_off = Some(VecDeque::new());
                Some(start)
            }
        });
        if next.is_none() {
            return;
        }
        let _outside_again = OutsideAgain;
        while let Some(start) = next {
            start.run();
            next = PUT_OFF.with_borrow_mut(|put_off| put_off.as_mut()?.pop_front());
        }
    }

    fn submit_to(self: &Arc<Self>, lane: Lane, job: &Job) {
        let Lane {
            run_id,
            connection,
            since,
        } = lane;
        if let Some(timing) = &job.timing {
            timing.given(&connection.record, since);
        }
        let mut operation = job.operation.clone();
        if let Err(error) = localize(&mut operation, connection.generation) {
            return self.finished(run_id, &connection, Err(error));
        }
        // Another host need not work for who is no longer there; what a worker has begun keeps its lane.
        let deadline = if connection.record.seat.connector.remote() {
            job.term.deadline + BEHIND_THE_KEEPER
        } else {
            since + NEVER
        };
        let core = Arc::clone(self);
        let token = Arc::clone(&connection);
        let done = Done::new(move |result| core.finished(run_id, &connection, result));
        let batch = Batch::from_buf([Request {
            behalf: job.behalf.clone(),
            operation,
            deadline,
            done,
        }]);
        job.runs_on(&token);
        token.token.submit(batch);
    }

    /// A token has answered: the lane goes to the next request before the caller hears of it.
    pub fn finished(
        self: &Arc<Self>,
        run_id: RunId,
        connection: &Arc<SeatConnection>,
        result: Result<Outcome>,
    ) {
        let error = result.as_ref().err();
        let work = self.give_back(run_id, connection, Purpose::Request, error);
        if let Some(ScheduledWork::Job(job)) = work {
            match result {
                Ok(outcome) => {
                    let outcome = publish(outcome, connection.generation);
                    self.note_session_keys(&job.operation, &outcome);
                    job.complete(Ok(outcome));
                }
                Err(error) => self.failed(job, connection, error),
            }
        }
    }

    /// An operation has succeeded.
    pub fn note_session_keys(&self, operation: &Operation, outcome: &Outcome) {
        let keys = &self.large_session_keys;
        if !matches!(outcome, Outcome::Bytes(_)) {
            keys.note(operation, outcome, &self.catalogue.load());
        }
    }

    /// Gives a lane back and starts what waits for it. Whoever gets the work answers it.
    pub fn give_back(
        self: &Arc<Self>,
        run_id: RunId,
        connection: &Arc<SeatConnection>,
        purpose: Purpose,
        error: Option<&Error>,
    ) -> Option<ScheduledWork> {
        let failed = error.is_some_and(|error| error.scope() == Scope::Token);
        let over = error.is_some_and(Error::ends_connection);
        let record = &connection.record;
        let (verdict, counter) = match purpose {
            _ if failed => (RunOutcome::Failed, Some(&record.failed)),
            Purpose::Request => (RunOutcome::Served, Some(&record.served)),
            Purpose::Proof => (RunOutcome::PoolWork, None),
        };
        counter.map(|counter| counter.fetch_add(1, Ordering::Relaxed));
        let now = clock::now();
        let mut scheduler = self.scheduler.lock();
        let work = scheduler.finish(run_id, now, verdict);
        let mut next = SmallVec::<[_; 1]>::new();
        if !over {
            next.extend(std::iter::from_fn(|| scheduler.next(run_id.seat, now)));
        }
        drop(scheduler);
        // What was behind one that was allowed more is due sooner now.
        self.alarm.by(now + record.seat.timeout);
        if over && let Some(error) = error {
            self.down(connection, error);
        }
        self.hand_out(next);
        work
    }

    fn failed(self: &Arc<Self>, job: Arc<Job>, connection: &Arc<SeatConnection>, error: Error) {
        job.left_its_seat();
        let answer = self.judge(&job.need, &mut job.attempt.lock(), connection, error);
        match answer {
            Some(error) => job.complete(Err(error)),
            None if job.is_cancelled() => job.complete(Err(cancelled())),
            None => self.place(job),
        }
    }

    /// The connection of a running request has ended, or is taken to have.
    pub fn orphaned(
        self: &Arc<Self>,
        work: ScheduledWork,
        connection: &Arc<SeatConnection>,
        error: &Error,
    ) {
        if let ScheduledWork::Job(job) = work {
            self.failed(job, connection, error.clone());
        }
    }
}

/// Session objects as the worker knows them: owner 0. An object of another connection is gone.
pub(crate) fn localize(operation: &mut Operation, generation: u64) -> Result<()> {
    let call = operation.call();
    for object in operation.objects_mut() {
        if let ObjectRef::Session(session) = object {
            if session.owner != generation {
                return Err(Error::request(
                    hsmux_token::Kind::UnknownObject,
                    format!("{call}: the session object is gone: its worker has ended"),
                ));
            }
            session.owner = 0;
        }
    }
    Ok(())
}

/// Session objects as the world knows them: owned by the connection.
pub(crate) fn publish(mut outcome: Outcome, generation: u64) -> Outcome {
    if let Outcome::Objects(made) = &mut outcome {
        for session in made.iter_mut().filter_map(|made| made.session.as_mut()) {
            session.owner = generation;
        }
    }
    outcome
}
