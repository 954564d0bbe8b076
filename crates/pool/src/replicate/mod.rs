//! Changes reach enough members, or none.
//!
//! What makes, changes or removes token objects is carried out on all members that are in service: a
//! new key is born on one of them as a session object that can be wrapped, and unwrapped on each as a
//! token object that cannot. The [journal](journal) knows every change before the first token object
//! is touched; a crash, or too few members, takes it back everywhere. A member that is away catches
//! up when it returns, and a key that was deleted meanwhile does not rise again.
//!
//! | file | one idea |
//! |---|---|
//! | `attach` | a pool that writes through all this |
//! | `door` | how its seats come in |
//! | `change` | a change from its beginning |
//! | `carry_out` | its parts, on enough members or on none |
//! | `plan`, `keys`, `newborn`, `objects` | what each member has to do, by the kind of operation |
//! | `work` | what one member does, repeatable and reversible |
//! | `channel`, `transport` | how a key goes from one token to another, wrapped |
//! | `replicator`, `born` | how it goes by the tokens' own means, where they have some |
//! | `journal` | what was decided, and who owes what |
//! | `origin` | how a key was made, which its copies do not say |
//! | `catch_up` | a member returns |
//! | `owed`, `repeats` | what members owe, in the status and the log |
//! | `clone` | existing keys to more tokens |
//! | `pin_rotate` | a new PIN on every member |

// The numbers of PKCS#11 carry their prefix: a list of forty says no more than a star.
#![allow(clippy::wildcard_imports)]

mod attach;
mod born;
mod carry_out;
mod catch_up;
mod change;
mod channel;
mod clone;
mod door;
mod each;
pub(crate) mod files;
#[doc(hidden)]
pub mod fuzzing;
mod journal;
pub(crate) mod json;
mod keys;
mod members;
mod newborn;
mod objects;
mod origin;
mod owed;
pub mod pin_rotate;
mod plan;
mod prove;
mod repeats;
mod replicator;
mod site;
mod template;
mod transport;
mod work;

#[cfg(test)]
mod tests;

pub use attach::{Hold, Writer, start};
pub use catch_up::CatchUp;
pub use clone::{Cloned, Fate, Selection};
pub use files::replace as replace_file;
pub use members::{Member, Members};
pub use replicator::Replicator;
pub use transport::TRANSPORT_LABEL;

use hsmux_config::{ENVELOPE_LIFE, LoneKeys};
use hsmux_token::sync::Turn;
use hsmux_token::{Error, Kind, ObjectId, Result};
use journal::Journal;
use repeats::Repeats;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use transport::Transport;

/// Carries out changes over the members of a pool, and remembers them in the state folder.
pub struct Coordinator {
    journal: Journal,
    transport: Transport,
    replicator: Option<Arc<dyn Replicator>>,
    replicas: usize,
    lone_keys: LoneKeys,
    envelope_life: Duration,
    threads: bool,
    /// What members could not do, by serial number and change.
    unpaid: Repeats<(String, u64)>,
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
            transport: Transport::open(&folder)?,
            replicator: None,
            replicas,
            lone_keys: LoneKeys::Made,
            envelope_life: ENVELOPE_LIFE,
            threads: true,
            unpaid: Repeats::default(),
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

    /// Takes wrapped keys out of the journal that nobody waits for, or has waited for too long; says when that is to
    /// be done again.
    fn tidy(&self, at_once: bool) -> Option<Duration> {
        self.expire_envelopes();
        if self.journal.drop_keys(at_once) {
            return Some(Duration::ZERO);
        }
        self.journal.expires_in(self.envelope_life)
    }

    /// Whether an object was deleted through the pool (or its making undone): it is not served,
    /// whoever brings it. Cheap.
    pub fn is_tombstoned(&self, object: &ObjectId) -> bool {
        self.journal.read(|state| state.is_tombstoned(object))
    }
}

/// Where changes are remembered.
fn folder(state: &Path) -> PathBuf {
    state.join("replicate")
}

/// Random bytes of the operating system: markers and challenges, never keys.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::pool(Kind::Environment, format!("random bytes: {e}")))?;
    Ok(bytes)
}
