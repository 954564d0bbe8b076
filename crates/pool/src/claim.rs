//! Requests whose callers may go away while they wait: nobody's token works for nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hsmux_token::{Error, Kind};

use crate::core::Core;
use crate::job::Job;

/// A request that its caller still wants. Dropped while the request waits for a seat, it gives the place in the
/// queue back; what runs already goes on.
#[must_use = "the request is given up where this is dropped"]
pub struct Claim(Option<Standing>);

struct Standing {
    core: Arc<Core>,
    job: Arc<Job>,
}

impl Claim {
    /// On what is carried out whatever becomes of its caller.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    pub(crate) fn on(core: &Arc<Core>, job: Arc<Job>) -> Self {
        Self(Some(Standing {
            core: Arc::clone(core),
            job,
        }))
    }

    /// The request is carried out whatever becomes of its caller.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(Standing { core, job }) = self.0.take()
            && let Some(ticket) = job.forsake()
            && core.scheduler.lock().cancel(ticket).is_some()
        {
            job.complete(Err(forsaken()));
        }
    }
}

/// Whoever asks for requests, one after the other: a request of its own knows it, which costs less than a claim
/// on each would.
#[derive(Default)]
pub(crate) struct Asker {
    gone: AtomicBool,
}

impl Asker {
    /// Whether it wants nothing any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Core {
    /// Nothing that this one has asked for is wanted any more: what waits gives its place in the queue back.
    pub(crate) fn forsake(&self, asker: &Arc<Asker>) {
        // First: what comes to the queue after it was looked through is found to be unwanted there.
        asker.gone.store(true, Ordering::Release);
        let unwanted = self.scheduler.lock().take_out(|work| work.is_of(asker));
        for work in unwanted {
            work.fail(forsaken());
        }
    }
}

pub(crate) fn forsaken() -> Error {
    Error::request(Kind::Deadline, "whoever asked has gone away")
}
