//! Errors with a scope: whose fault it is decides what happens next.

use minicbor::{Decode, Encode};
use std::time::Duration;

use crate::rv;

/// The result of anything that a token does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whose fault an error is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Scope {
    /// The caller's: the same request fails everywhere. Never retried.
    #[n(0)]
    Request,
    /// One token's: another replica may well answer.
    #[n(1)]
    Token,
    /// The pool's: nobody can serve now.
    #[n(2)]
    Pool,
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
pub enum Kind {
    /// A vendor's call returned this CK_RV.
    #[n(0)]
    Vendor(#[n(0)] u64),
    /// The queue is full. Come back later.
    #[n(1)]
    Busy,
    /// The deadline has passed.
    #[n(2)]
    Deadline,
    /// No member in service holds the key (or has the mechanism).
    #[n(3)]
    NoReplica,
    /// No such object in the catalogue, or not visible to this caller.
    #[n(4)]
    UnknownObject,
    /// A read-only listener refuses to change a token.
    #[n(5)]
    ReadOnly,
    /// The object is private and the caller has not logged in.
    #[n(6)]
    NotLoggedIn,
    /// The application's PIN is wrong. No token was touched.
    #[n(7)]
    PinIncorrect,
    /// Too many wrong PINs of this application: wait.
    #[n(8)]
    PinThrottled,
    /// This PIN is not tried on this token (again): see the message for why and what to do.
    #[n(9)]
    PinHeld,
    /// Policy: this caller may not do this.
    #[n(10)]
    Forbidden,
    /// The worker or the connection died, or was ended because it hung; the outcome is unknown.
    #[n(11)]
    Lost,
    /// The peer broke the protocol, or speaks another version.
    #[n(12)]
    Protocol,
    /// hsmux does not offer this.
    #[n(13)]
    Unsupported,
    /// The request makes no sense: a length, an argument.
    #[n(14)]
    Invalid,
    /// A replica did not prove that it holds the key.
    #[n(15)]
    Unproved,
    /// The configuration, the state folder or another file.
    #[n(16)]
    Environment,
    /// The mechanism is not offered by any member that holds the key.
    #[n(17)]
    NoMechanism,
    /// A change did not reach as many members as it has to: it was undone, or is finished later, as the message says.
    #[n(18)]
    TooFewMembers,
    /// This user may not open the daemon's socket.
    #[n(19)]
    AccessDenied,
}

/// An error that says which call failed, whose fault it is, and the vendor's code.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(transparent)]
pub struct Error(#[n(0)] Box<ErrorContent>);

/// The parts of an error.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(array)]
struct ErrorContent {
    #[n(0)]
    scope: Scope,
    #[n(1)]
    kind: Kind,
    #[n(2)]
    message: String,
    #[n(3)]
    retry_after_ms: Option<u64>,
}

impl Error {
    /// An error of a kind, with a sentence that names what, where and what to do.
    pub fn new(scope: Scope, kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorContent {
            scope,
            kind,
            message: message.into(),
            retry_after_ms: None,
        }))
    }

    /// A vendor's call failed; `call` is its name (`C_Sign`).
    pub fn vendor(call: &str, code: u64) -> Self {
        let name = rv::name(code);
        Self::new(
            rv::scope(code),
            Kind::Vendor(code),
            format!("{call}: {name} (0x{code:08x})"),
        )
    }

    /// The caller's fault.
    pub fn request(kind: Kind, message: impl Into<String>) -> Self {
        Self::new(Scope::Request, kind, message)
    }

    /// One token's fault.
    pub fn token(kind: Kind, message: impl Into<String>) -> Self {
        Self::new(Scope::Token, kind, message)
    }

    /// The pool's fault.
    pub fn pool(kind: Kind, message: impl Into<String>) -> Self {
        Self::new(Scope::Pool, kind, message)
    }

    /// The worker is gone; what it was doing has an unknown outcome.
    pub fn lost(message: impl Into<String>) -> Self {
        Self::token(Kind::Lost, message)
    }

    /// The peer broke the protocol.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::token(Kind::Protocol, message)
    }

    /// The queue is full; `retry_after` is a hint from its length and the rate.
    #[must_use]
    pub fn busy(waiting: usize, retry_after: Duration) -> Self {
        let mut error = Self::pool(
            Kind::Busy,
            format!("{waiting} operations are waiting, which is all that may; try again later"),
        );
        error.0.retry_after_ms = Some(u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX));
        error
    }

    /// Puts where it happened before the message, unless that is said already.
    ///
    /// ```
    /// use hsmux_token::{Error, Kind};
    /// let error = Error::token(Kind::Lost, "gone").at("hsm1").at("hsm1").at("hsm1#2");
    /// assert!(error.to_string().starts_with("hsm1#2: hsm1: gone"));
    /// ```
    #[must_use]
    pub fn at(mut self, place: impl std::fmt::Display) -> Self {
        let place = format!("{place}: ");
        // On its way up an error may come by the same name twice.
        if !self.0.message.starts_with(&place) {
            self.0.message.insert_str(0, &place);
        }
        self
    }

    /// The same error with another scope: a pool that has tried everybody makes it its own.
    #[must_use]
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.0.scope = scope;
        self
    }

    /// Whose fault it is.
    pub fn scope(&self) -> Scope {
        self.0.scope
    }

    /// What went wrong.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// When to come back, for [`Kind::Busy`].
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after_ms.map(Duration::from_millis)
    }

    /// The vendor's CK_RV, where a vendor's call failed.
    pub fn code(&self) -> Option<u64> {
        match self.0.kind {
            Kind::Vendor(code) => Some(code),
            _ => None,
        }
    }

    /// Whether the token must be connected anew before it serves again. Other errors of a token
    /// (CKR_GENERAL_ERROR, ...) may be about one request only: they call for a fresh proof.
    pub fn ends_connection(&self) -> bool {
        self.0.scope == Scope::Token
            && match self.0.kind {
                Kind::Vendor(code) => rv::ends_connection(code),
                Kind::Lost | Kind::Protocol => true,
                _ => false,
            }
    }

    /// The CK_RV that an application sees.
    pub fn to_rv(&self) -> u64 {
        rv::of_error(self)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}
