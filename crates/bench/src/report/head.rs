//! The head of every report.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::Machine;

/// The command, time and machine of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// [`crate::SCHEMA`].
    pub schema: String,
    /// `sign`, `scale`, `compare` or `burn-in`.
    pub command: String,
    /// Time of the measurement (RFC 3339, UTC).
    pub measured_at: String,
    /// The machine.
    pub machine: Machine,
}

impl Head {
    /// For a measurement that ends now, on this machine.
    pub(crate) fn now(command: &str) -> Self {
        Self {
            schema: crate::SCHEMA.to_owned(),
            command: command.to_owned(),
            measured_at: now(),
            machine: Machine::this(),
        }
    }

    /// The line below a page's title.
    pub(crate) fn when_and_where(&self) -> String {
        format!("Measured {} on {}", self.measured_at, self.machine)
    }
}

/// The current time to the second (RFC 3339, UTC).
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// The machine, in lines of 80 columns.
impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::format::lines(&format!("on {}", self.machine)))
    }
}
