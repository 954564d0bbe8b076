//! Cancels requests whose callers go away while they wait, so that no token works for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hsmux_token::{Error, Kind};

use crate::core::Core;
use crate::job::Job;

/// A request that its caller still wants. If this is dropped while the request waits for a seat, the request is
/// cancelled. A request that runs goes on.
#[must_use = "dropping this cancels the request"]
pub struct Claim(Option<PendingRequest>);

struct PendingRequest {
    core: Arc<Core>,
    job: Arc<Job>,
}

impl Claim {
    /// Of a request that is not cancelled.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    pub(crate) fn on(core: &Arc<Core>, job: Arc<Job>) -> Self {
        Self(Some(PendingRequest {
            core: Arc::clone(core),
            job,
        }))
    }

    /// The request is no longer cancelled with its caller.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(PendingRequest { core, job }) = self.0.take()
            && let Some(ticket) = job.cancel()
            && core.scheduler.lock().cancel(ticket).is_some()
        {
            job.complete(Err(cancelled()));
        }
    }
}

/// The origin of many requests, which are cancelled together. Each request refers to it, which costs less than a claim
/// for each.
#[derive(Default)]
pub(crate) struct Requester {
    gone: AtomicBool,
}

impl Requester {
    /// True if its requests are cancelled.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Core {
    /// Cancels all requests of this requester.
    pub(crate) fn cancel(&self, requester: &Arc<Requester>) {
        // This comes first: a request that is queued after the search finds the flag and cancels itself.
        requester.gone.store(true, Ordering::Release);
        let unwanted = self.scheduler.lock().take_out(|work| work.is_of(requester));
        for work in unwanted {
            work.fail(cancelled());
        }
    }
}

pub(crate) fn cancelled() -> Error {
    Error::request(Kind::Deadline, "the caller has gone away")
}
