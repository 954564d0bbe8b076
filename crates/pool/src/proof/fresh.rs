//! Proves a key on a fresh connection that does not serve yet.

use std::sync::Arc;

use hsmux_token::{Class, Error, Kind, Object, Operation, Result};

use super::{Finding, private, secret};
use crate::core::Core;
use crate::record::SeatConnection;

impl Core {
    /// Proves a key on a fresh connection, by its public half or by the serving connection. Answers an operation to
    /// compare the two connections with, if possible by this mechanism.
    pub fn prove_fresh(
        self: &Arc<Self>,
        fresh: &Arc<SeatConnection>,
        serving: &Arc<SeatConnection>,
        object: &Object,
        mechanism: u64,
    ) -> Result<Operation> {
        let (finding, samples) = match object.id.class {
            Class::SECRET_KEY => (
                secret::prove_against(self, serving, fresh, object)?,
                secret::samples(self, serving, fresh, object)?,
            ),
            _ => (
                private::prove(self, fresh, object)?,
                private::samples(self, fresh, object)?,
            ),
        };
        if let Finding::Not(reason) | Finding::NotYet(reason) = finding {
            return Err(Error::token(Kind::Unproved, reason));
        }
        let preferred =
            |operation: &Operation| operation.mechanism().is_some_and(|m| m.kind == mechanism);
        let at = samples.iter().position(preferred).unwrap_or(0);
        samples.into_iter().nth(at).ok_or_else(|| {
            let message = "there is no work by which it could be compared with a fresh worker";
            Error::token(Kind::Unsupported, message)
        })
    }
}
