//! Changes of token objects: what generates, imports or deletes on members is not the pool's to decide.

use std::time::Instant;

use hsmux_token::{Operation, Outcome, Result};

use crate::{DebtStatus, Pool, Seat};

/// Carries out operations for which [`Operation::changes_token`] holds.
///
/// The pool calls it for one operation at a time: there is one writer.
pub trait Changes: Send + Sync {
    /// Reaches enough members or none, and tells the pool what has changed ([`Pool::refresh`]).
    fn change(&self, pool: &Pool, operation: Operation, deadline: Instant) -> Result<Outcome>;

    /// What members have yet to make up for.
    fn debts(&self) -> Vec<DebtStatus> {
        Vec::new()
    }

    /// A seat on its way into the pool: what it connects to may have to be brought up to date first.
    fn admit(&self, seat: Seat) -> Seat {
        seat
    }
}
