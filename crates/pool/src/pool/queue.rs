//! Changes of token objects: carries out one at a time, the others wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hsmux_token::{Displaced, Error, FairQueue, Kind, Operation, Outcome, Request, Result};

use super::Pool;
use crate::Owner;
use crate::clock;
use crate::inline::Changing;

/// Changes that were submitted, and whether there is a thread that carries them out.
pub(super) struct ChangeQueue {
    changes: FairQueue<Owner, Request>,
    thread: bool,
}

impl ChangeQueue {
    /// For so many changes.
    pub fn new(places: usize) -> Self {
        Self {
            changes: FairQueue::new(places),
            thread: false,
        }
    }
}

/// The time after which a busy pool is worth another try: about the time of one key.
const CHANGE_TAKES: Duration = Duration::from_secs(1);

impl Pool {
    pub(super) fn change(&self, operation: Operation, deadline: Instant) -> Result<Outcome> {
        let call = operation.call();
        self.core.stand_in_for_the_keeper();
        let _writer = self
            .writer
            .lock_until(deadline)
            .ok_or_else(|| too_late(call))?;
        let _changing = Changing::begin();
        match self.changes.get() {
            Some(changes) => changes.change(self, operation, deadline),
            None => Err(Error::request(
                Kind::Unsupported,
                format!("{call}: this pool was started without the means to change token objects"),
            )),
        }
    }

    /// Changes that wait for their turn.
    pub(super) fn changes_waiting(&self) -> usize {
        self.waiting.lock().changes.len()
    }

    /// Lets the one thread for changes carry it out; starts that thread where none runs.
    pub(super) fn change_on_a_thread(&self, request: Request, owner: Owner) {
        if let Err(refused) = self.refuse_change(&request.operation) {
            return request.done.complete(Err(refused));
        }
        if !self.core.options.threads {
            return self.carry_out(request);
        }
        let Some(pool) = self.me.upgrade() else {
            return request.done.complete(Err(stopped()));
        };
        let mut waiting = self.waiting.lock();
        if let Some(Displaced(request)) = waiting.changes.push(owner, request) {
            // There is a thread: the queue is full.
            let busy = Error::busy(waiting.changes.len(), CHANGE_TAKES);
            drop(waiting);
            return request.done.complete(Err(busy));
        }
        if waiting.thread {
            return;
        }
        match clock::spawn("hsmux-change".into(), move || pool.carry_out_all()) {
            Ok(()) => waiting.thread = true,
            Err(error) => {
                tracing::error!("no thread for a change of the tokens: {error}");
                let orphans = waiting.changes.drain();
                drop(waiting);
                // Each is answered when it is dropped.
                drop(orphans);
            }
        }
    }

    fn carry_out_all(&self) {
        loop {
            let mut waiting = self.waiting.lock();
            let Some(request) = waiting.changes.pop() else {
                waiting.thread = false;
                return;
            };
            drop(waiting);
            // A panic ends one change, and the next ones go on.
            if catch_unwind(AssertUnwindSafe(|| self.carry_out(request))).is_err() {
                tracing::error!("a change of the tokens ended in a panic");
            }
        }
    }

    fn carry_out(&self, request: Request) {
        let result = if self.core.stopping.load(Ordering::Acquire) {
            Err(stopped())
        } else if clock::now() >= request.deadline {
            Err(too_late(request.operation.call()))
        } else {
            self.change(request.operation, request.deadline)
        };
        request.done.complete(result);
    }

    pub(super) fn refuse_change(&self, operation: &Operation) -> Result<()> {
        if !self.core.options.read_only {
            return Ok(());
        }
        let message = format!("{}: the pool is read-only", operation.call());
        Err(Error::request(Kind::ReadOnly, message))
    }
}

fn stopped() -> Error {
    Error::lost("the pool has stopped")
}

fn too_late(call: &str) -> Error {
    let message = format!("{call}: other changes of the tokens took until the deadline");
    Error::pool(Kind::Deadline, message)
}
