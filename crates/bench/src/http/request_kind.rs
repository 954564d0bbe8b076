//! The kinds of requests, one table.

use std::fmt;

/// A kind of request.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestKind {
    /// Its name in mixes.
    pub name: &'static str,
    /// The path below `/v1/`; if it ends with `/`, the key's name follows.
    pub path: &'static str,
    /// The field of an item with the bytes, in base64.
    pub payload: Option<&'static str>,
    /// An operation whose answer has a field for the items of this one, and the name of that field.
    pub of: Option<(&'static str, &'static str)>,
    /// The field that an answer must have.
    pub answer: &'static str,
}

/// All operations; `health` is a constant request without a key.
const REQUEST_KINDS: [RequestKind; 8] = [
    RequestKind::new("encrypt", "transit/encrypt/", "plaintext", "ciphertext"),
    RequestKind {
        payload: None,
        of: Some(("encrypt", "ciphertext")),
        ..RequestKind::new("decrypt", "transit/decrypt/", "", "plaintext")
    },
    RequestKind {
        payload: None,
        of: Some(("encrypt", "ciphertext")),
        ..RequestKind::new("rewrap", "transit/rewrap/", "", "ciphertext")
    },
    RequestKind::new("sign", "transit/sign/", "input", "signature"),
    RequestKind {
        of: Some(("sign", "signature")),
        ..RequestKind::new("verify", "transit/verify/", "input", "valid")
    },
    RequestKind::new("hmac", "transit/hmac/", "input", "hmac"),
    RequestKind::new("hash", "transit/hash", "input", "sum"),
    RequestKind {
        payload: None,
        ..RequestKind::new("health", "sys/health", "", "initialized")
    },
];

impl RequestKind {
    const fn new(
        name: &'static str,
        path: &'static str,
        payload: &'static str,
        answer: &'static str,
    ) -> Self {
        Self {
            name,
            path,
            payload: Some(payload),
            of: None,
            answer,
        }
    }

    /// Returns the operation of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        REQUEST_KINDS.iter().find(|kind| kind.name == name)
    }

    /// Whether it is a GET without a body.
    pub const fn is_constant(&self) -> bool {
        self.payload.is_none() && self.of.is_none()
    }

    /// All names, for messages.
    pub fn names() -> String {
        let names: Vec<_> = REQUEST_KINDS.iter().map(|kind| kind.name).collect();
        names.join(", ")
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
