//! A member's token for changes: what runs there beside the requests of callers is known to the scheduler, so
//! that a worker that makes a key is not taken to hang because signatures stand behind that.

use std::sync::{Arc, Weak};
use std::time::Instant;

use hsmux_token::{
    Batch, Error, Operation, Outcome, Pace, Result, Seen, Snapshot, Token, TokenInfo,
};

use crate::core::Core;
use crate::need::Need;
use crate::owner::Cost;
use crate::record::Connection;
use crate::scheduler::{Place, Term, Verdict};

/// A connection that serves callers, too.
pub(crate) struct Aside {
    core: Weak<Core>,
    connection: Arc<Connection>,
}

impl Aside {
    pub fn of(core: &Arc<Core>, connection: Arc<Connection>) -> Arc<dyn Token> {
        Arc::new(Self {
            core: Arc::downgrade(core),
            connection,
        })
    }
}

impl Token for Aside {
    fn info(&self) -> Arc<TokenInfo> {
        self.connection.token.info()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        self.connection.token.objects()
    }

    fn look(&self) -> Result<Seen> {
        self.connection.token.look()
    }

    fn pace(&self) -> Vec<Pace> {
        self.connection.token.pace()
    }

    fn submit(&self, batch: Batch) {
        self.connection.token.submit(batch);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        let core = self.core.upgrade();
        let _known = core.and_then(|core| Known::begin(core, &self.connection, operation));
        self.connection.token.execute(operation, deadline)
    }

    fn on_lost(&self, lost: Box<dyn FnOnce(Error) + Send>) {
        self.connection.token.on_lost(lost);
    }

    fn process(&self) -> Option<u32> {
        self.connection.token.process()
    }

    fn abort(&self, reason: &str) {
        self.connection.token.abort(reason);
    }
}

/// While it lives the scheduler knows that the operation runs.
struct Known {
    core: Arc<Core>,
    place: Place,
}

impl Known {
    /// Nothing where the connection no longer serves.
    fn begin(core: Arc<Core>, connection: &Connection, operation: &Operation) -> Option<Self> {
        let now = Instant::now();
        let term = Term {
            deadline: now,
            patience: Need::of(operation).patience,
            cost: Cost::POOL,
        };
        let (index, generation) = (connection.record.index, connection.generation);
        let place = core.scheduler.lock().begin(index, generation, now, term)?;
        core.alarm.by(now + connection.record.seat.timeout);
        Some(Self { core, place })
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut scheduler = self.core.scheduler.lock();
        scheduler.finish(self.place, now, Verdict::Aside);
        let next = || scheduler.next(self.place.seat, now);
        let grants: Vec<_> = std::iter::from_fn(next).collect();
        drop(scheduler);
        self.core.hand_out(grants);
    }
}
