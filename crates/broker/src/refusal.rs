//! Errors as HTTP responses: the one map.

use std::time::Duration;

use axum::http::StatusCode;
use hsmux_token::{Error, Kind, Scope, ck};

/// A status of HTTP and its message for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// The problem and what to do; `None` if the dialect sends the status alone.
    pub message: Option<String>,
    /// The time after which to retry, for 429 and 503.
    pub retry_after: Option<Duration>,
}

/// The default time after which to retry.
const SOON: Duration = Duration::from_secs(1);

/// The longest text on the trail, in characters.
const LONGEST: usize = 300;

/// The longest text for a client, in bytes: a text that quotes the client could be as long as a request.
const LONGEST_TEXT: usize = 1 << 10;

impl Refusal {
    /// A refusal with a sentence.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: Some(shortened(message.into())),
            retry_after: None,
        }
    }

    /// 400: the request makes no sense.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 403, without the reason.
    pub fn denied() -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission denied")
    }

    /// 404 of a key.
    pub fn no_key() -> Self {
        Self::new(StatusCode::NOT_FOUND, "encryption key not found")
    }

    /// 503: come back later.
    pub fn later(message: impl Into<String>, after: Option<Duration>) -> Self {
        Self {
            retry_after: Some(after.unwrap_or(SOON)),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }

    /// True if the client is to blame, as the dialect's batches distinguish it.
    pub fn is_clients(&self) -> bool {
        self.status.is_client_error()
    }

    /// The text for a line of the trail.
    pub fn brief(&self) -> String {
        let text = self.text();
        match text.char_indices().nth(LONGEST) {
            None => text.to_owned(),
            Some((end, _)) => format!("{}...", &text[..end]),
        }
    }

    /// The sentence.
    pub fn text(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let message = told(&error);
        let status = match error.kind() {
            Kind::Busy
            | Kind::Deadline
            | Kind::NoReplica
            | Kind::Lost
            | Kind::TooFewMembers
            | Kind::Unproved
            | Kind::PinHeld
            | Kind::PinThrottled
            // The PINs are the tokens', which no client has.
            | Kind::PinIncorrect
            | Kind::NotLoggedIn
            | Kind::AccessDenied
            | Kind::Environment => return Self::later(message, error.retry_after()),
            // The trail cannot be written, the token is full, or the last token is gone.
            Kind::Vendor(
                ck::CKR_DEVICE_MEMORY | ck::CKR_DEVICE_REMOVED | ck::CKR_TOKEN_NOT_PRESENT,
            ) => return Self::later(message, None),
            Kind::UnknownObject => return Self::no_key(),
            Kind::ReadOnly | Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::Unsupported | Kind::Invalid | Kind::NoMechanism => StatusCode::BAD_REQUEST,
            Kind::Vendor(_) if error.scope() == Scope::Request => StatusCode::BAD_REQUEST,
            Kind::Vendor(_) | Kind::Protocol => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, message)
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT).rfind(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push_str("...");
        text.shrink_to_fit();
    }
    text
}

/// The text of an error for clients, without paths of this host.
fn told(error: &Error) -> String {
    let text = error.to_string();
    if error.scope() == Scope::Request {
        return text;
    }
    let words = text.split(' ');
    let name = |word: &'_ str| word.rsplit('/').next().unwrap_or_default().to_owned();
    words.map(name).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_files_of_the_host_are_is_not_told() {
        let told = |error: Error| Refusal::from(error).text().to_owned();
        let full = Error::pool(
            Kind::Environment,
            "audit trail /var/lib/hsmux/audit.log: no space; make room",
        );
        assert_eq!(told(full), "audit trail audit.log: no space; make room");
        let own = Error::request(Kind::Invalid, "pkcs11:object=a/b names no key");
        assert_eq!(told(own), "pkcs11:object=a/b names no key");
    }

    #[test]
    fn what_is_kept_of_a_sentence_is_short() {
        let long = Refusal::bad("\u{e4}".repeat(LONGEST + 1)).brief();
        assert_eq!(long, format!("{}...", "\u{e4}".repeat(LONGEST)));
        assert_eq!(Refusal::denied().brief(), "permission denied");
    }

    #[test]
    fn a_sentence_has_so_many_bytes_for_a_client() {
        let long = Refusal::bad(format!("a{}", "\u{e4}".repeat(10_000_000)));
        let message = long.message.as_ref().unwrap();
        let expected = format!("a{}...", "\u{e4}".repeat(LONGEST_TEXT / 2 - 1));
        assert_eq!(*message, expected);
        assert!(message.capacity() < 2 * LONGEST_TEXT);
        let short = "x".repeat(LONGEST_TEXT);
        assert_eq!(Refusal::bad(short.clone()).text(), short);
    }

    #[test]
    fn whose_fault_it_is_decides_the_status() {
        let status = |error: Error| Refusal::from(error).status.as_u16();
        let request = |kind| Error::request(kind, "x");
        assert_eq!(status(request(Kind::UnknownObject)), 404);
        assert_eq!(status(request(Kind::NoMechanism)), 400);
        assert_eq!(status(Error::vendor("C_Sign", ck::CKR_DATA_LEN_RANGE)), 400);
        assert_eq!(status(Error::vendor("C_Sign", ck::CKR_DEVICE_ERROR)), 500);
        assert_eq!(status(Error::vendor("C_Sign", ck::CKR_DEVICE_REMOVED)), 503);
        assert_eq!(status(request(Kind::PinIncorrect)), 503);
        assert_eq!(status(Error::pool(Kind::NotLoggedIn, "x")), 503);
        let busy = Refusal::from(Error::busy(7, Duration::from_secs(3)));
        assert_eq!(busy.status.as_u16(), 503);
        assert_eq!(busy.retry_after, Some(Duration::from_secs(3)));
        assert!(
            Refusal::from(Error::pool(Kind::NoReplica, "x"))
                .retry_after
                .is_some()
        );
    }
}
