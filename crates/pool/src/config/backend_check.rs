//! How servers are asked whether they are well, before a client's request is.

use std::time::Duration;

use super::reader::{Fields, text};

/// A request of HTTP, again and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// What is asked for, with a query if there is one.
    pub path: String,
    /// How long after it has begun the next one begins.
    pub interval: Duration,
}

/// Often enough for whoever waits, and never for ever.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);

pub fn check(fields: &mut Fields<'_, '_, '_>) -> Option<Check> {
    let path = fields.read("backend_check", |value| path(text(value)?));
    let interval = fields.duration("backend_check_interval");
    let wrong = match interval {
        Some(_) if !fields.has("backend_check") => Some("give backend_check, what is asked for"),
        Some(interval) if !INTERVALS.contains(&interval) => Some("from 100ms to one hour"),
        _ => None,
    };
    if let Some(wrong) = wrong {
        let span = fields.span_of("backend_check_interval");
        let message = format!("backend_check_interval: {wrong}");
        fields.source.error(span, message);
    }
    Some(Check {
        path: path?,
        interval: interval.unwrap_or(Duration::from_secs(5)),
    })
}

/// RFC 9112, section 3.2.1.
fn path(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
    if text.starts_with('/') && text.bytes().all(fits) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no path of a URL, such as /health"))
}
