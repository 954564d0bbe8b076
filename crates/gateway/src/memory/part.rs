//! The memory of a waiting part of a body, which is more than its bytes.

use std::sync::Arc;

use bytes::Bytes;

use super::MemoryAccount;

/// Approximate bytes of a part besides its content: its entry in the queue of h2, and its owner.
pub const ENTRY: usize = 512;

/// Shorter parts are copied: one may be a single byte that keeps a buffer of 32 KiB alive.
const SHORT: usize = 16 << 10;

/// A part of a body that the client has yet to be sent.
pub struct UnsentPart {
    bytes: Bytes,
    account: Arc<MemoryAccount>,
}

/// The charge of a waiting part.
pub fn cost(part: &Bytes) -> usize {
    part.len() + ENTRY
}

/// A part that does not keep the rest of its buffer alive.
pub fn own(part: Bytes) -> Bytes {
    if part.len() < SHORT {
        Bytes::copy_from_slice(&part)
    } else {
        part
    }
}

impl UnsentPart {
    pub fn new(part: Bytes, account: &Arc<MemoryAccount>) -> Self {
        Self {
            bytes: own(part),
            account: Arc::clone(account),
        }
    }
}

impl AsRef<[u8]> for UnsentPart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for UnsentPart {
    fn drop(&mut self) {
        self.account.end(cost(&self.bytes));
    }
}
