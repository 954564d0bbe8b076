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

pub fn check(fields: &mut Fields<'_, '_, '_>) -> Option<Check> {
    let path = fields.read("backend_check", |value| path(text(value)?));
    // Often enough for whoever waits, and never for ever.
    let interval = fields.duration_from("backend_check_interval", "100ms", "1h");
    if interval.is_some() && !fields.has("backend_check") {
        let span = fields.span_of("backend_check_interval");
        let message = "backend_check_interval: give backend_check, what is asked for";
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
