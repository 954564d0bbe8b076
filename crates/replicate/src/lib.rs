//! Changes reach enough members, or none.
//!
//! A change makes, changes or removes token objects on all members in service. A new key is made on one of them as a
//! session object that can be wrapped. Each member then unwraps it as a token object that cannot.
//!
//! The [journal](journal) records every change before the first token object is touched. A crash, or too few members,
//! undoes it everywhere. A member that is away catches up when it returns. A key that was deleted meanwhile stays
//! deleted.
//!
//! | file | one idea |
//! |---|---|
//! | `writer` | a pool whose changes go through the coordinator |
//! | `catch_up_connector` | members catch up when they connect |
//! | `change` | the start of a change |
//! | `carry_out` | its parts, on enough members or on none |
//! | `plan`, `keys`, `wrappable_key`, `objects` | the tasks of each member, by the kind of operation |
//! | `member_task` | one task of a member, repeatable and reversible |
//! | `channel`, `transport` | the transfer of a wrapped key between tokens |
//! | `replicator`, `replicated_key` | the transfer by the tokens' own means |
//! | `journal` | decisions and debts |
//! | `origin` | the origin of a key, which its copies do not show |
//! | `catch_up` | a member returns |
//! | `debt_report`, `repeated_warnings` | debts in the status and the log |
//! | `clone` | existing keys to more tokens |
//! | `pin_rotate` | a new PIN on every member |

// The numbers of PKCS#11 carry their prefix: a list of forty says no more than a star.
#![allow(clippy::wildcard_imports)]

mod carry_out;
mod catch_up;
mod catch_up_connector;
mod change;
mod channel;
mod clone;
mod debt_report;
#[doc(hidden)]
pub mod fuzzing;
mod in_parallel;
mod journal;
mod keys;
mod member_task;
mod members;
mod objects;
mod origin;
pub mod pin_rotate;
mod plan;
mod prove;
mod repeated_warnings;
mod replicated_key;
mod replicator;
mod template;
mod token_access;
mod transport;
mod wrappable_key;
mod writer;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use catch_up::CatchUp;
pub use clone::{CloneOutcome, ClonedObject, Selection};
pub use members::{PoolMember, PoolMembers};
pub use replicator::Replicator;
pub use transport::TRANSPORT_LABEL;
pub use writer::{Hold, Writer, start};

use hsmux_config::{ENVELOPE_LIFE, LoneKeys};
use hsmux_token::sync::Turn;
use hsmux_token::{Error, Kind, ObjectId, Result};
use journal::Journal;
use repeated_warnings::RepeatedWarnings;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use transport::TransportKeys;

/// Carries out changes over the members of a pool, and remembers them in the state folder.
pub struct Coordinator {
    journal: Journal,
    transport: TransportKeys,
    replicator: Option<Arc<dyn Replicator>>,
    replicas: usize,
    lone_keys: LoneKeys,
    envelope_life: Duration,
    threads: bool,
    /// Failed tasks of members, by serial number and change.
    unpaid: RepeatedWarnings<(String, u64)>,
    /// One change after the other. Clones run beside each other, but not beside a change.
    turn: Turn<()>,
}

impl Coordinator {
    /// Opens the journal in the folder `replicate` of the state folder, and decides the changes that
    /// a crash has left open. One process at a time may.
    ///
    /// `replicas` is the number of members that a change must reach, or 0: all configured members,
    /// of which those may be away that can catch up later.
    pub fn open(state: &Path, replicas: usize) -> Result<Self> {
        Self::open_within(state, replicas, Duration::ZERO)
    }

    /// The same, waiting so long for another process that writes.
    fn open_within(state: &Path, replicas: usize, patience: Duration) -> Result<Self> {
        let folder = folder(state);
        Ok(Self {
            journal: Journal::open(&folder, patience)?,
            transport: TransportKeys::open(&folder)?,
            replicator: None,
            replicas,
            lone_keys: LoneKeys::Made,
            envelope_life: ENVELOPE_LIFE,
            threads: true,
            unpaid: RepeatedWarnings::default(),
            turn: Turn::new(()),
        })
    }

    /// The same, keeping new keys for so long for members that are away.
    #[must_use]
    pub fn with_envelope_life(self, envelope_life: Duration) -> Self {
        Self {
            envelope_life,
            ..self
        }
    }

    /// The same, with another rule for keys of kinds that cannot be copied.
    #[must_use]
    pub fn with_lone_keys(self, lone_keys: LoneKeys) -> Self {
        Self { lone_keys, ..self }
    }

    /// The same on the callers' threads alone: for an application that does not allow any others.
    #[must_use]
    pub fn without_threads(self) -> Self {
        Self {
            threads: false,
            ..self
        }
    }

    /// With a way of keys between tokens of a kind, by their own means: all others wrap them.
    #[must_use]
    pub fn with_replicator(self, replicator: Option<Arc<dyn Replicator>>) -> Self {
        Self { replicator, ..self }
    }

    /// Removes wrapped keys from the journal that no member waits for, or has waited for too long; returns the time
    /// of the next removal.
    fn tidy(&self, at_once: bool) -> Option<Duration> {
        self.expire_envelopes();
        if self.journal.drop_keys(at_once) {
            return Some(Duration::ZERO);
        }
        self.journal.expires_in(self.envelope_life)
    }

    /// True if an object was deleted through the pool (or its creation undone): it is not served by any member.
    /// Cheap.
    pub fn is_tombstoned(&self, object: &ObjectId) -> bool {
        self.journal.read(|state| state.is_tombstoned(object))
    }
}

/// The folder of the journal.
fn folder(state: &Path) -> PathBuf {
    state.join("replicate")
}

/// Random bytes of the operating system: markers and challenges, never keys.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    #[cfg(test)]
    if simulation::fill(&mut bytes) {
        return Ok(bytes);
    }
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::pool(Kind::Environment, format!("random bytes: {e}")))?;
    Ok(bytes)
}
