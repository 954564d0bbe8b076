//! The lines of the journal.

use super::JournalState;
use crate::member_task::MemberTask;
use hsmux_state::json::{Cbor, Name};
use hsmux_token::Attributes;
use serde::{Deserialize, Serialize};

/// One line. The number of a change grows by one with each, over restarts.
#[derive(Serialize, Deserialize, Debug)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum JournalRecord {
    /// All that earlier lines said: the first line of a compacted journal.
    Snapshot { state: Box<JournalState> },
    /// The token that was last behind a member's name.
    Seen { member: String, serial: String },
    /// A change is about to start; nothing has been touched.
    Begin { change: u64, call: String },
    /// The intent of the change; no token object has been touched.
    Intent {
        change: u64,
        intent: Intent,
        /// When, in seconds after 1970; 0 where that was not written.
        #[serde(default)]
        at: u64,
    },
    /// A member has done its part.
    Step { change: u64, serial: String },
    /// Enough members have; the others will when they return.
    Commit { change: u64 },
    /// Too few have: what they did is taken back, also by those that come later.
    Undone {
        change: u64,
        why: String,
        /// Members that have done nothing, by serial number.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        untouched: Vec<String>,
    },
    /// A member has done what it owed for a change that was decided before, or is not configured any more.
    Applied { change: u64, serial: String },
    /// A member has been away for too long, or has lost its transport key: it does not get the keys of this change.
    Expired { change: u64, serial: String },
    /// The only member removes or has made objects of these names: how the ones before were made says nothing of what
    /// comes under their names.
    Unexplained { objects: Vec<Name> },
    /// Objects were put on a member by cloning.
    Placed { serial: String, objects: Vec<Name> },
}

/// A change, as every member that has a part in it needs it.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Intent {
    /// The PKCS#11 call, for messages.
    pub call: String,
    /// So many members must have done it.
    pub need: usize,
    /// The parts of the members.
    pub parts: Vec<MemberPart>,
    /// Objects that are there after it.
    pub makes: Vec<Name>,
    /// Objects that are gone after it.
    pub removes: Vec<Name>,
    /// How keys of these were made, where their copies do not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<(Name, Cbor<Attributes>)>,
}

impl Intent {
    /// True if it holds wrapped keys.
    pub fn has_keys(&self) -> bool {
        let works = self.parts.iter().flat_map(|part| &part.works);
        works.into_iter().any(|work| work.0.has_key())
    }
}

/// One member's part in a change.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct MemberPart {
    /// The token.
    pub serial: String,
    /// The tasks.
    pub works: Vec<Cbor<MemberTask>>,
    /// The tasks that undo them; empty for a deletion, which is always finished.
    pub undo: Vec<Cbor<MemberTask>>,
    /// It was away, or owed an earlier change: it has done nothing when the change is undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub later: bool,
}
