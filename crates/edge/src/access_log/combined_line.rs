//! A line in the combined format of NCSA's server: `HOST - USER [TIME] "REQUEST" STATUS BYTES "REFERER" "USER-AGENT"`.

use std::fmt::Write as _;

use super::escape::{quoted, word};
use super::record::{AccessDetails, AccessRecord, LONGEST_FIELD, LONGEST_NAME, LONGEST_PATH, UNIX};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The size of most lines, in bytes.
const TYPICAL: usize = 256;

/// The line of a record that has ended.
pub fn write<D: AccessDetails>(record: &AccessRecord<D>) -> String {
    let mut line = String::with_capacity(TYPICAL);
    // Writing to a string cannot fail.
    let _ = match record.details.client() {
        Some(client) => write!(line, "{} - ", client.ip().to_canonical()),
        None => write!(line, "{UNIX} - "),
    };
    word(
        &mut line,
        record.details.user().unwrap_or_default().as_bytes(),
        LONGEST_NAME,
    );
    // 2026-11-29T12:22:11Z
    let time = humantime::format_rfc3339_seconds(record.begun).to_string();
    let month = time[5..7].parse::<usize>().unwrap_or(1);
    let month = MONTHS[month.clamp(1, MONTHS.len()) - 1];
    let (year, day, clock) = (&time[..4], &time[8..10], &time[11..19]);
    let _ = write!(line, " [{day}/{month}/{year}:{clock} +0000] \"");
    let (mut referer, mut agent) = (&b""[..], &b""[..]);
    if let Some(head) = &record.head {
        quoted(&mut line, &head.method, LONGEST_NAME);
        line.push(' ');
        let path = record.details.path();
        let path = path.as_ref().map_or(&head.path[..], |path| path.as_bytes());
        word(&mut line, path, LONGEST_PATH);
        line.push(' ');
        line.push_str(head.protocol);
        (referer, agent) = (&head.referer, &head.user_agent);
    } else {
        line.push('-');
    }
    let _ = write!(line, "\" {} {} \"", record.status(), record.transfer.sent());
    quoted(&mut line, referer, LONGEST_FIELD);
    line.push_str("\" \"");
    quoted(&mut line, agent, LONGEST_FIELD);
    line.push_str("\"\n");
    line
}
