//! Identification of clients: by bearer token, JWT, certificate, or user id on the unix socket.

mod certificate;
mod jws;
pub(crate) mod jwt;
mod tokens;
mod trust;

use std::fmt;

pub use certificate::identities as of_certificate;
pub use tokens::{ClientTokens, NewToken, issue};
pub use trust::IssuerTrust;

/// A client with all identities that it has shown, as policies name them: `token:billing`, `subject:CN=app`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientIdentity {
    identities: Vec<String>,
    token: Option<Lifetime>,
}

/// The owner of a bearer token, and how long the token is valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenOwner {
    /// As policies name it: `token:billing`, `jwt:app`.
    pub name: String,
    /// The token's own.
    pub lifetime: Lifetime,
}

/// The times of creation and expiry of a bearer token, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lifetime {
    /// `None` if a JWT does not say it.
    pub created: Option<u64>,
    /// `None` if it does not expire.
    pub expires: Option<u64>,
}

/// The prefix of a certificate's name by its hash.
const FINGERPRINT: &str = "fingerprint:";

impl ClientIdentity {
    /// By its identities, the strongest first.
    pub fn new(identities: Vec<String>) -> Self {
        Self {
            identities,
            token: None,
        }
    }

    /// Adds the lifetime of its token.
    #[must_use]
    pub fn with_token(self, token: Option<Lifetime>) -> Self {
        Self { token, ..self }
    }

    /// The lifetime of its token.
    pub fn token(&self) -> Option<Lifetime> {
        self.token
    }

    /// True if a policy's word names this client; `*` names every client that has shown anything.
    pub fn is(&self, who: &str) -> bool {
        if who == "*" {
            return self.is_known();
        }
        let same = |identity: &String| {
            let hex = who.starts_with(FINGERPRINT);
            identity == who || hex && identity.eq_ignore_ascii_case(who)
        };
        self.identities.iter().any(same)
    }

    /// True for a process of this machine, on the unix socket.
    pub fn is_local(&self) -> bool {
        let by_kernel = |identity: &String| identity.starts_with("uid:");
        self.identities.iter().any(by_kernel)
    }

    /// The SHA-256 of its certificate, in hexadecimal.
    pub fn fingerprint(&self) -> Option<&str> {
        let mut all = self.identities.iter();
        all.find_map(|identity| identity.strip_prefix(FINGERPRINT))
    }

    /// The one name for places that have room for one.
    pub fn name(&self) -> &str {
        self.identities.first().map_or("anonymous", String::as_str)
    }

    /// True if the client has shown anything.
    pub fn is_known(&self) -> bool {
        !self.identities.is_empty()
    }
}

/// For the trail.
impl fmt::Display for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
