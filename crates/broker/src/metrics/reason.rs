//! Reasons of refusals, in few words.

use axum::http::StatusCode;

use crate::refusal::Refusal;

macro_rules! reasons {
    ($($reason:ident $word:literal $help:literal,)*) => {
        /// The reason of a refused request or a failed operation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Reason {
            $(#[doc = $help] $reason,)*
        }

        impl Reason {
            /// All, in the order of the documentation.
            pub const ALL: [Self; [$($word,)*].len()] = [$(Self::$reason,)*];

            /// As the page has it.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$reason => $word,)*
                }
            }
        }
    };
}

reasons! {
    Request "request" "It makes no sense: 400, 405, 408.",
    Denied "denied" "No policy allows it: 403.",
    Unknown "unknown" "There is no such key or path: 404.",
    Size "size" "It is too long: 413.",
    Limit "limit" "The client asks too much: 429.",
    Busy "busy" "The pool has no room or no member, or the audit trail cannot be written: 503.",
    Failed "failed" "It is our fault, or a token's: all other 5xx.",
    Gone "gone" "The client has gone before it was answered.",
}

impl Reason {
    /// By the status of the answer.
    pub fn of(refusal: &Refusal) -> Self {
        match refusal.status {
            StatusCode::FORBIDDEN => Self::Denied,
            StatusCode::NOT_FOUND => Self::Unknown,
            StatusCode::PAYLOAD_TOO_LARGE => Self::Size,
            StatusCode::TOO_MANY_REQUESTS => Self::Limit,
            StatusCode::SERVICE_UNAVAILABLE => Self::Busy,
            status if status.is_server_error() => Self::Failed,
            _ => Self::Request,
        }
    }
}
