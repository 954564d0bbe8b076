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
pub use key::Key;
pub use send::send;

/// The current keys. All clones share them.
#[derive(Clone)]
pub struct Keys(Arc<ArcSwap<Ring>>);

/// The key for new tickets, and the keys whose tickets are accepted as well.
pub struct Ring {
    /// Seals new tickets.
    pub current: Key,
    /// Its tickets are accepted, and replaced by new ones.
    pub previous: Option<Key>,
    /// Its tickets are accepted: a server whose clock is ahead has issued them.
    pub next: Option<Key>,
}

impl Keys {
    /// Starts with these keys.
    pub fn new(ring: Ring) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(ring)))
    }

    /// Replaces all keys.
    pub fn replace(&self, ring: Ring) {
        self.0.store(Arc::new(ring));
    }
}
