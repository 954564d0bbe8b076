//! A part of a body that waits: what it holds, which is more than its bytes.

use std::sync::Arc;

use bytes::Bytes;

use super::Account;

/// What a part holds beside its bytes, about: its entry in the queue of h2, and its owner.
pub const ENTRY: usize = 512;

/// A shorter part is copied: it may be one byte of a buffer of 32 KiB, which lives as long as the part.
const SHORT: usize = 16 << 10;

/// A part of a body that the client has yet to be sent.
pub struct Unsent {
    bytes: Bytes,
    account: Arc<Account>,
}

/// What a part that waits is charged.
pub fn cost(part: &Bytes) -> usize {
    part.len() + ENTRY
}

/// The part without the rest of the buffer that it was read into.
pub fn own(part: Bytes) -> Bytes {
    if part.len() < SHORT {
        Bytes::copy_from_slice(&part)
    } else {
        part
    }
}

impl Unsent {
    pub fn new(part: Bytes, account: &Arc<Account>) -> Self {
        Self {
            bytes: own(part),
            account: Arc::clone(account),
        }
    }
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.account.end(cost(&self.bytes));
    }
}
