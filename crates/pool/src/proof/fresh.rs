//! Proves a key on a fresh connection that does not serve yet.

use std::sync::Arc;

use hsmux_token::{Class, Error, Kind, Object, Result};

use super::{Finding, is_counted, private, secret};
use crate::core::Core;
use crate::record::SeatConnection;

impl Core {
    /// Proves a key on a fresh connection of the same token, by its public half or by the serving connection. Does nothing
    /// if the key's uses are counted.
    pub fn prove_fresh(
        self: &Arc<Self>,
        fresh: &Arc<SeatConnection>,
        serving: &Arc<SeatConnection>,
        object: &Object,
    ) -> Result<()> {
        if is_counted(&self.options, object) {
            return Ok(());
        }
        let finding = match object.id.class {
            Class::SECRET_KEY => secret::prove_against(self, serving, fresh, object)?,
            _ => private::prove(self, fresh, object)?,
        };
        match finding {
            Finding::Not(reason) | Finding::NotYet(reason) => {
                Err(Error::token(Kind::Unproved, reason))
            }
            Finding::Proved => Ok(()),
        }
    }
}
