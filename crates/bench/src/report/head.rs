//! What every report begins with.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::Machine;

/// Which command measured, when, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// [`crate::SCHEMA`].
    pub schema: String,
    /// `sign`, `scale`, `compare` or `burn-in`.
    pub command: String,
    /// When it was measured (RFC 3339, UTC).
    pub measured_at: String,
    /// Where.
    pub machine: Machine,
}

impl Head {
    /// Of a measurement that ends now, on this machine.
    pub(crate) fn now(command: &str) -> Self {
        Self {
            schema: crate::SCHEMA.to_owned(),
            command: command.to_owned(),
            measured_at: now(),
            machine: Machine::this(),
        }
    }

    /// For the line below a page's title.
    pub(crate) fn when_and_where(&self) -> String {
        format!("Measured {} on {}", self.measured_at, self.machine)
    }
}

/// The time, to the second (RFC 3339, UTC).
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// The machine, in lines of 80 columns.
impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::format::lines(&format!("on {}", self.machine)))
    }
}
