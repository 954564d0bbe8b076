//! A member's token for changes of objects. The scheduler counts its operations like requests. Otherwise a worker that
//! makes a key would seem to hang, because signatures wait behind it.

use std::sync::{Arc, Weak};
use std::time::Instant;

use hsmux_token::{
    Batch, Error, ObjectChanges, Operation, OperationPace, Outcome, Result, Snapshot, Token,
    TokenInfo,
};

use crate::clock;
use crate::core::Core;
use crate::need::Need;
use crate::owner::Cost;
use crate::record::SeatConnection;
use crate::scheduler::{RunId, RunOutcome, Term};

/// A serving connection, used for a change.
pub(crate) struct TrackedToken {
    core: Weak<Core>,
    connection: Arc<SeatConnection>,
}

impl TrackedToken {
    pub fn of(core: &Arc<Core>, connection: Arc<SeatConnection>) -> Arc<dyn Token> {
        Arc::new(Self {
            core: Arc::downgrade(core),
            connection,
        })
    }
}

impl Token for TrackedToken {
    fn info(&self) -> Arc<TokenInfo> {
        self.connection.token.info()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        self.connection.token.objects()
    }

    fn look(&self) -> Result<ObjectChanges> {
        self.connection.token.look()
    }

    fn pace(&self) -> Vec<OperationPace> {
        self.connection.token.pace()
    }

    fn submit(&self, batch: Batch) {
        self.connection.token.submit(batch);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        let core = self.core.upgrade();
        let _running =
            core.and_then(|core| RunningChange::begin(core, &self.connection, operation));
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

/// The scheduler counts the operation while this lives.
struct RunningChange {
    core: Arc<Core>,
    run_id: RunId,
}

impl RunningChange {
    /// `None` if the connection no longer serves.
    fn begin(core: Arc<Core>, connection: &SeatConnection, operation: &Operation) -> Option<Self> {
        let now = clock::now();
        let term = Term {
            deadline: now,
            patience: Need::of(operation).patience,
            cost: Cost::POOL,
        };
        let (index, generation) = (connection.record.index, connection.generation);
        let run_id = core.scheduler.lock().begin(index, generation, now, term)?;
        core.alarm.by(now + connection.record.seat.timeout);
        Some(Self { core, run_id })
    }
}

impl Drop for RunningChange {
    fn drop(&mut self) {
        let now = clock::now();
        let mut scheduler = self.core.scheduler.lock();
        scheduler.finish(self.run_id, now, RunOutcome::PoolWork);
        let next = || scheduler.next(self.run_id.seat, now);
        let grants: Vec<_> = std::iter::from_fn(next).collect();
        drop(scheduler);
        self.core.hand_out(grants);
    }
}
