//! A line in JSON.

use std::fmt::Write as _;
use std::time::Duration;

use super::escape;
use super::record::{AccessDetails, AccessRecord, LONGEST_FIELD};

/// A JSON object in one line.
pub struct JsonLine(String);

/// The size of most lines, in bytes.
const TYPICAL: usize = 512;

/// The line of a record that has ended.
pub fn write<D: AccessDetails>(record: &AccessRecord<D>) -> String {
    let mut line = JsonLine(String::with_capacity(TYPICAL));
    let time = humantime::format_rfc3339_millis(record.begun);
    // Writing to a string cannot fail.
    let _ = write!(line.0, "{{\"time\":\"{time}\"");
    match record.details.client() {
        Some(client) => {
            let ip = client.ip().to_canonical();
            let _ = write!(line.0, ",\"client\":\"{ip}\",\"port\":{}", client.port());
        }
        None => line.text("client", super::record::UNIX),
    }
    if let Some(head) = &record.head {
        line.bounded("method", &head.method, super::record::LONGEST_NAME);
        line.bounded("host", &head.host, LONGEST_FIELD);
        let path = record.details.path();
        let path = path.as_ref().map_or(&head.path[..], |path| path.as_bytes());
        line.bounded("path", path, super::record::LONGEST_PATH);
        line.text("protocol", head.protocol);
    }
    line.number("status", record.status().into());
    line.number("sent", record.transfer.sent());
    line.number("received", record.transfer.received());
    line.millis("ms", record.took());
    if record.is_aborted() {
        line.flag("aborted", true);
    }
    record.details.add_to(&mut line);
    if let Some(head) = &record.head {
        for (name, value) in [("referer", &head.referer), ("user_agent", &head.user_agent)] {
            if !value.is_empty() {
                line.bounded(name, value, LONGEST_FIELD);
            }
        }
    }
    line.0.push_str("}\n");
    line.0
}

impl JsonLine {
    /// Adds a text, which is cut if it is long.
    pub fn text(&mut self, name: &'static str, value: &str) {
        self.bounded(name, value.as_bytes(), super::record::LONGEST_NAME);
    }

    /// Adds a number.
    pub fn number(&mut self, name: &'static str, value: u64) {
        let _ = write!(self.0, ",\"{name}\":{value}");
    }

    /// Adds milliseconds, with three digits after the point.
    pub fn millis(&mut self, name: &'static str, value: Duration) {
        let micros = value.as_micros();
        let _ = write!(self.0, ",\"{name}\":{}.{:03}", micros / 1000, micros % 1000);
    }

    /// Adds true or false.
    pub fn flag(&mut self, name: &'static str, value: bool) {
        let _ = write!(self.0, ",\"{name}\":{value}");
    }

    fn bounded(&mut self, name: &'static str, value: &[u8], most: usize) {
        let _ = write!(self.0, ",\"{name}\":\"");
        escape::json(&mut self.0, value, most);
        self.0.push('"');
    }
}
