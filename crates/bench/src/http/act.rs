//! What can be asked for, once.

use std::fmt;

/// A kind of request.
#[derive(Debug, PartialEq, Eq)]
pub struct Act {
    /// As mixes name it.
    pub name: &'static str,
    /// Below `/v1/`; the key's name follows where it ends with `/`.
    pub path: &'static str,
    /// The member of an item that has the bytes, in base64.
    pub payload: Option<&'static str>,
    /// What an item has of the answer to another act: that act, and the member, called the same there.
    pub of: Option<(&'static str, &'static str)>,
    /// The member of an answer that shows that it is one.
    pub answer: &'static str,
}

/// All of them; `health` is a constant, and says what the service answers without any key.
const ACTS: [Act; 8] = [
    Act::new("encrypt", "transit/encrypt/", "plaintext", "ciphertext"),
    Act {
        payload: None,
        of: Some(("encrypt", "ciphertext")),
        ..Act::new("decrypt", "transit/decrypt/", "", "plaintext")
    },
    Act {
        payload: None,
        of: Some(("encrypt", "ciphertext")),
        ..Act::new("rewrap", "transit/rewrap/", "", "ciphertext")
    },
    Act::new("sign", "transit/sign/", "input", "signature"),
    Act {
        of: Some(("sign", "signature")),
        ..Act::new("verify", "transit/verify/", "input", "valid")
    },
    Act::new("hmac", "transit/hmac/", "input", "hmac"),
    Act::new("hash", "transit/hash", "input", "sum"),
    Act {
        payload: None,
        ..Act::new("health", "sys/health", "", "initialized")
    },
];

impl Act {
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

    /// By its name.
    pub fn find(name: &str) -> Option<&'static Self> {
        ACTS.iter().find(|act| act.name == name)
    }

    /// Whether it is a GET without a body.
    pub const fn is_constant(&self) -> bool {
        self.payload.is_none() && self.of.is_none()
    }

    /// All names, for people.
    pub fn names() -> String {
        let names: Vec<_> = ACTS.iter().map(|act| act.name).collect();
        names.join(", ")
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
