//! The Transit dialect of OpenBao and Vault.
//!
//! | file | one idea |
//! |---|---|
//! | `sealed_text` | `vault:v1:...` |
//! | `answer` | answers |
//! | `batch` | one item or many, each with its own answer |
//! | `bounded_list` | a list with a limit |
//! | `in_order` | many answers in order, several at work at once |
//! | `batch_yield` | yields between the items of a batch |
//! | `extra_members` | members of an item that are not the operation's |
//! | `loose` | numbers and flags as the dialect's clients write them |
//! | `requested_key` | the key of a request, managed or external |
//! | `crypt` | encrypt, decrypt, rewrap, datakey |
//! | `sign`, `marshal` | sign, verify; forms of signatures |
//! | `hmac` | hmac, and its part of verify |
//! | `keys`, `certificate` | keys and their certificates |
//! | `key_view` | the view of a key |
//! | `plain` | random, hash: operations without a key |

mod answer;
pub mod batch;
mod batch_yield;
mod bounded_list;
pub mod certificate;
pub mod crypt;
mod extra_members;
pub mod hmac;
mod in_order;
mod key_view;
pub mod keys;
mod loose;
pub(crate) mod marshal;
pub mod plain;
mod requested_key;
pub(crate) mod sealed_text;
pub mod sign;

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::refusal::Refusal;

pub use answer::{Data, Reply};
pub(crate) use key_view::time;

/// The longest input of one operation, in bytes: a frame to a worker has 16 MiB with all its fields.
const LONGEST_INPUT: usize = (16 << 20) - (64 << 10);

/// Refuses input that is too long for any operation of a token.
fn check_length(field: &str, length: usize) -> Result<(), Refusal> {
    if length <= LONGEST_INPUT {
        return Ok(());
    }
    let message = format!(
        "{field}: {length} bytes with what belongs to it; an operation takes {LONGEST_INPUT}"
    );
    Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message))
}

/// Bytes as the dialect has them.
fn base64(bytes: &[u8]) -> Value {
    STANDARD.encode(bytes).into()
}

/// The bytes of a field; an absent field is empty.
fn bytes(field: &str, text: Option<&str>) -> Result<Vec<u8>, Refusal> {
    let decoded = STANDARD.decode(text.unwrap_or_default());
    decoded.map_err(|e| Refusal::bad(format!("failed to base64-decode {field}: {e}")))
}
