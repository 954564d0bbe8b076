//! The Transit dialect of OpenBao and Vault: its requests, its answers, its words.
//!
//! | file | one idea |
//! |---|---|
//! | `sealed` | `vault:v1:...` |
//! | `batch` | one item or many, each with its own answer |
//! | `loose` | numbers and flags as the dialect's clients write them |
//! | `named` | the key that a request means, managed or not |
//! | `crypt` | encrypt, decrypt, rewrap, datakey |
//! | `sign`, `marshal` | sign, verify; the forms of signatures |
//! | `hmac` | hmac, and its part of verify |
//! | `keys`, `certificate` | keys and what is kept with them |
//! | `plain` | random, hash: what needs no key |

pub mod batch;
pub mod certificate;
pub mod crypt;
pub mod hmac;
pub mod keys;
mod loose;
mod marshal;
mod named;
pub mod plain;
mod sealed;
pub mod sign;

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// The members of an answer.
pub type Data = Map<String, Value>;

/// What a request is answered with when all is well.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// 204.
    Nothing,
    /// The dialect's envelope around this, with a status.
    Data(StatusCode, Data),
}

impl Reply {
    /// 200.
    pub fn ok(data: Data) -> Self {
        Self::Data(StatusCode::OK, data)
    }
}

/// An object of JSON.
fn data<const N: usize>(members: [(&str, Value); N]) -> Data {
    members
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Bytes as the dialect has them.
fn base64(bytes: &[u8]) -> Value {
    STANDARD.encode(bytes).into()
}

/// The bytes of a field; an absent one is empty.
fn bytes(field: &str, text: Option<&str>) -> Result<Vec<u8>, Refusal> {
    let decoded = STANDARD.decode(text.unwrap_or_default());
    decoded.map_err(|e| Refusal::bad(format!("failed to base64-decode {field}: {e}")))
}
