//! Keys of TLS session tickets (RFC 5077, RFC 8446 section 4.6.1) that come from outside of BoringSSL, so
//! that every server of a cluster resumes what another has begun, and that change while it serves.
//!
//! BoringSSL takes them by a callback that is `unsafe` to give, and sends tickets before the first write by a call that
//! is `unsafe` as well. docs/internals/unsafe.md has the reasons.

mod callback;
mod key;
mod send;

use std::sync::Arc;

use arc_swap::ArcSwap;

pub use callback::install;
pub use key::Key;
pub use send::send;

/// The keys that are good now, the same for all who hold a clone.
#[derive(Clone)]
pub struct Keys(Arc<ArcSwap<Ring>>);

/// One key for new tickets, and those whose tickets are taken as well.
pub struct Ring {
    /// What new tickets are sealed with.
    pub current: Key,
    /// Tickets of this one are taken, and replaced by new ones.
    pub previous: Option<Key>,
    /// Tickets of this one are taken: a server whose clock is ahead has given them.
    pub next: Option<Key>,
}

impl Keys {
    /// So many servers as hold this, and a first set of keys.
    pub fn new(ring: Ring) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(ring)))
    }

    /// From now on these are good, and no others.
    pub fn replace(&self, ring: Ring) {
        self.0.store(Arc::new(ring));
    }
}
