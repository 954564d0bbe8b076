//! Keys of TLS session tickets (RFC 5077, RFC 8446 section 4.6.1) that all servers of a cluster share. So each server
//! resumes sessions of the others. They change while the server runs.
//!
//! BoringSSL takes the keys by a callback, and sends tickets before the first write by a call. Both are `unsafe`;
//! docs/internals/unsafe.md has the reasons.

mod callback;
mod key;
mod send;

use std::sync::Arc;

use arc_swap::ArcSwap;

pub use callback::install;
pub use key::TicketKey;
pub use send::send;

/// The current keys. All clones share them.
#[derive(Clone)]
pub struct TicketKeys(Arc<ArcSwap<TicketKeyRing>>);

/// The key for new tickets, and the keys whose tickets are accepted as well.
pub struct TicketKeyRing {
    /// Seals new tickets.
    pub current: TicketKey,
    /// Its tickets are accepted, and replaced by new ones.
    pub previous: Option<TicketKey>,
    /// Its tickets are accepted: a server whose clock is ahead has issued them.
    pub next: Option<TicketKey>,
}

impl TicketKeys {
    /// Starts with these keys.
    pub fn new(ring: TicketKeyRing) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(ring)))
    }

    /// Replaces all keys.
    pub fn replace(&self, ring: TicketKeyRing) {
        self.0.store(Arc::new(ring));
    }
}
