//! Requests inside the pool. Some are answered by completion, others have callers that block.

use std::sync::Arc;
use std::time::Instant;

use hsmux_token::{Behalf, Done, Error, Operation, Outcome, Request, Result};

use crate::claim::Requester;
use crate::client_session::Affinity;
use crate::clock::{Monitor, Mutex};
use crate::need::Need;
use crate::owner::Owner;
use crate::record::SeatConnection;
use crate::request_timing::RequestTiming;
use crate::scheduler::{Grant, Term, Ticket};
use crate::seatset::SeatSet;

/// Work that waits in the queue, or runs on a seat.
#[derive(Clone)]
pub(crate) enum ScheduledWork {
    Job(Arc<Job>),
    Caller(Arc<Waiter>),
}

/// A request that was submitted.
pub(crate) struct Job {
    pub need: Need,
    pub operation: Operation,
    pub term: Term,
    pub attempt: Mutex<RequestAttempts>,
    /// The client on whose behalf a service requests it.
    pub behalf: Option<Box<Behalf>>,
    /// Records its timing.
    pub timing: Option<Arc<RequestTiming>>,
    /// Its requester, if that may go away.
    requester: Option<Arc<Requester>>,
    state: Mutex<JobState>,
    done: Mutex<Option<Done>>,
}

/// How a request was submitted.
#[derive(Default)]
pub(crate) struct Ask<'a> {
    /// The seat of its application's session objects.
    pub affinity: Option<&'a Arc<Affinity>>,
    pub requester: Option<&'a Arc<Requester>>,
    /// The owner, if it has no affinity.
    pub owner: Owner,
    pub timing: Option<Arc<RequestTiming>>,
}

/// The state of a request, for its cancellation.
enum JobState {
    /// It runs, or a seat is being chosen.
    Active,
    Queued(Ticket),
    /// It runs in the daemon's pool, which can withdraw it.
    InDaemon(Arc<SeatConnection>),
    /// Its caller has gone away.
    Cancelled,
}

/// A caller that blocks until a seat is free, and then runs its operation there itself.
pub(crate) struct Waiter {
    pub need: Need,
    pub term: Term,
    pub attempt: RequestAttempts,
    granted: Monitor<Option<Result<Lane>>>,
}

/// The origin of an operation in a lane.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A caller's request: it counts in the statistics.
    Request,
    /// The pool's own, to prove a replica.
    Proof,
}

/// A lane of a seat.
pub(crate) type Lane = Grant<Arc<SeatConnection>>;

/// The attempts of a request so far.
#[derive(Clone, Default)]
pub(crate) struct RequestAttempts {
    /// Seats that have failed it; each is asked once at most.
    pub tried: SeatSet,
    /// Failures that may be the request's own fault.
    pub soft: u32,
    pub last: Option<Error>,
}

impl Job {
    pub fn new(request: Request, ask: Ask<'_>) -> Arc<Self> {
        let need = Need::at(&request.operation, ask.affinity, ask.owner);
        Arc::new(Self {
            term: Term {
                deadline: request.deadline,
                patience: need.patience,
                cost: need.cost,
            },
            need,
            operation: request.operation,
            attempt: Mutex::default(),
            behalf: request.behalf,
            timing: ask.timing,
            requester: ask.requester.cloned(),
            state: Mutex::new(JobState::Active),
            done: Mutex::new(Some(request.done)),
        })
    }

    /// Tells the answer; a second one is dropped.
    pub fn complete(&self, result: Result<Outcome>) {
        self.left_its_seat();
        let done = self.done.lock().take();
        if let Some(done) = done {
            done.complete(result);
        }
    }

    /// Notes that it waits in the queue. `false` if it was cancelled.
    pub fn waits(&self, ticket: Ticket) -> bool {
        let mut state = self.state.lock();
        let wanted = !matches!(*state, JobState::Cancelled);
        if wanted {
            *state = JobState::Queued(ticket);
        }
        wanted && !self.requester_is_gone()
    }

    pub fn is_cancelled(&self) -> bool {
        self.requester_is_gone() || matches!(*self.state.lock(), JobState::Cancelled)
    }

    fn requester_is_gone(&self) -> bool {
        self.requester
            .as_ref()
            .is_some_and(|requester| requester.is_gone())
    }

    /// A seat has it. If that is the daemon's pool, it can be withdrawn there.
    pub fn runs_on(&self, connection: &Arc<SeatConnection>) {
        let Some(request) = self.withdrawal() else {
            return;
        };
        let mut state = self.state.lock();
        if matches!(*state, JobState::Cancelled) {
            drop(state);
            connection.record.seat.connector.withdraw(request);
        } else {
            *state = JobState::InDaemon(Arc::clone(connection));
        }
    }

    /// Cancels it, unless it was answered. Answers its ticket if it waits in the queue.
    pub fn cancel(&self) -> Option<Ticket> {
        if self.done.lock().is_none() {
            return None;
        }
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, JobState::Cancelled) {
            JobState::Queued(ticket) => Some(ticket),
            JobState::InDaemon(connection) => {
                drop(state);
                if let Some(request) = self.withdrawal() {
                    connection.record.seat.connector.withdraw(request);
                }
                None
            }
            JobState::Active | JobState::Cancelled => None,
        }
    }

    /// The number by which the daemon can withdraw it.
    fn withdrawal(&self) -> Option<u64> {
        let request = self.behalf.as_ref()?.request;
        (request != 0).then_some(request)
    }

    /// Its run on a seat has ended.
    pub fn left_its_seat(&self) {
        if let Some(timing) = &self.timing {
            timing.ended();
        }
    }
}

impl Waiter {
    pub fn new(need: Need, term: Term, attempt: RequestAttempts) -> Arc<Self> {
        Arc::new(Self {
            need,
            term,
            attempt,
            granted: Monitor::new(None),
        })
    }

    /// A lane is free, or there will be none.
    pub fn give(&self, lane: Result<Lane>) {
        *self.granted.lock() = Some(lane);
        self.granted.notify_one();
    }

    /// Queued until the deadline, or until `again`; `None` if it has passed.
    pub fn wait(&self, again: Option<Instant>) -> Option<Result<Lane>> {
        let until = again.map_or(self.term.deadline, |again| again.min(self.term.deadline));
        let mut granted = self.granted.lock();
        while granted.is_none() {
            let is_late;
            (granted, is_late) = self.granted.wait_until(granted, until);
            if is_late {
                break;
            }
        }
        granted.take()
    }

    /// Queued for what has been decided already and is on its way.
    pub fn take(&self) -> Result<Lane> {
        let mut granted = self.granted.lock();
        loop {
            match granted.take() {
                Some(lane) => return lane,
                None => granted = self.granted.wait(granted),
            }
        }
    }
}

impl RequestAttempts {
    /// A request that has already failed somewhere waits for another seat only if the seat was lost.
    pub fn may_wait(&self) -> bool {
        self.last.as_ref().is_none_or(Error::ends_connection)
    }
}

impl ScheduledWork {
    /// What is needed, where it was tried, and until when.
    pub fn with<T>(&self, look: impl FnOnce(&Need, &RequestAttempts, Term) -> T) -> T {
        match self {
            Self::Job(job) => look(&job.need, &job.attempt.lock(), job.term),
            Self::Caller(waiter) => look(&waiter.need, &waiter.attempt, waiter.term),
        }
    }

    /// True if this one has asked for it.
    pub fn is_of(&self, requester: &Arc<Requester>) -> bool {
        match self {
            Self::Job(job) => job
                .requester
                .as_ref()
                .is_some_and(|of| Arc::ptr_eq(of, requester)),
            Self::Caller(_) => false,
        }
    }

    /// There will be no answer but this.
    pub fn fail(&self, error: Error) {
        match self {
            Self::Job(job) => job.complete(Err(error)),
            Self::Caller(waiter) => waiter.give(Err(error)),
        }
    }
}
