//! Health checks of back ends, independent of clients' requests.

use std::time::Duration;

use super::reader::{Fields, text};

/// A periodic HTTP request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// Path of the request, with a query if any.
    pub path: String,
    /// The interval from the start of one request to the start of the next.
    pub interval: Duration,
}

pub fn check(fields: &mut Fields<'_, '_, '_>) -> Option<Check> {
    let path = fields.read("backend_check", |value| path(text(value)?));
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

/// The request target has this form by RFC 9112, section 3.2.1.
fn path(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
    if text.starts_with('/') && text.bytes().all(fits) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no path of a URL, such as /health"))
}
