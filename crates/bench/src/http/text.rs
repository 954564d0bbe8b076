//! The measurement as a table.

use std::fmt;

use super::HttpReport;
use crate::format::{lines, rate};

impl HttpReport {
    /// The load in a line.
    pub(super) fn what(&self) -> String {
        let batch = match self.batch {
            1 => String::new(),
            items => format!(", batches of {items}"),
        };
        let connections = if self.keep_alive {
            "kept connections"
        } else {
            "a connection for each request"
        };
        format!(
            "{} with key {}, {} bytes{batch}, {} clients, {connections}",
            self.mix, self.key, self.payload, self.measurement.workers
        )
    }
}

impl fmt::Display for HttpReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", lines(&self.what()))?;
        writeln!(f, "{}", lines(&format!("from {}", self.url)))?;
        writeln!(f, "{}\n", self.head)?;
        if self.batch > 1 {
            writeln!(f, "items       {}", rate(self.items_per_second))?;
        }
        writeln!(f, "{}", self.measurement)
    }
}
