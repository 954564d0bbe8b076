//! The coordinator's end of a connection to a token.

use std::sync::Arc;
use std::time::Instant;

use hsmux_token::{Batch, Made, Object, Operation, Outcome, Result, Snapshot, Token, TokenInfo};

use super::faults::StepFault;
use super::world::ChangeWorld;

pub(super) struct SimulatedToken {
    pub world: Arc<ChangeWorld>,
    pub token: usize,
    /// The connection's number: after another one has begun, this one has ended.
    pub connection: u64,
}

impl Token for SimulatedToken {
    fn info(&self) -> Arc<TokenInfo> {
        self.world.info(self.token)
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        let read = "C_FindObjects";
        let run = |state: &mut super::world::WorldState, fault| match fault {
            StepFault::Error { error, .. } => Err(error),
            StepFault::None | StepFault::Death { .. } => {
                let made = |object| Made {
                    session: None,
                    object,
                };
                let all = state.tokens[self.token].read_all();
                Ok(Outcome::Objects(all.into_iter().map(made).collect()))
            }
        };
        let all = self.world.step(self.token, self.connection, read, run)?;
        let objects: Vec<Object> = all.into_objects()?.into_iter().map(|m| m.object).collect();
        Ok(Arc::new(Snapshot {
            epoch: 1,
            objects,
            is_partial: false,
        }))
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            let result = self.execute(&request.operation, request.deadline);
            request.done.complete(result);
        }
    }

    fn execute(&self, operation: &Operation, _deadline: Instant) -> Result<Outcome> {
        self.world.execute(self.token, self.connection, operation)
    }

    fn abort(&self, _reason: &str) {
        self.world.state().tokens[self.token].is_ended = true;
    }
}
