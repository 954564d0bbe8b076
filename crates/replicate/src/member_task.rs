//! The task of one member in a change. Every task may run twice: existing objects stay.

mod apply;

use super::channel::Envelope;
use hsmux_token::ck::{CKA_ID, CKA_LABEL};
use hsmux_token::{Attributes, Borrow, Object, ObjectId};
use minicbor::{Decode, Encode};

/// One step of one member.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(context_bound = "Borrow")]
pub(super) enum MemberTask {
    /// Takes a key out of its envelope.
    #[n(0)]
    Unwrap {
        /// The key's name once it is there.
        #[n(0)]
        makes: ObjectId,
        /// The key.
        #[n(1)]
        envelope: Envelope,
        /// Its attributes.
        #[n(2)]
        template: Attributes,
        /// CKA_CHECK_VALUE, for a secret key: by it the token checks what it has unwrapped.
        #[n(3)]
        check_value: Option<hsmux_token::Blob>,
    },
    /// Creates a public object.
    #[n(1)]
    Create {
        /// Its name once it is there.
        #[n(0)]
        makes: ObjectId,
        /// Its attributes.
        #[n(1)]
        template: Attributes,
    },
    /// Copies an object from another member: its value must not be in the journal.
    #[n(2)]
    Fetch {
        /// The object.
        #[n(0)]
        makes: ObjectId,
    },
    /// Copies an object within the token.
    #[n(3)]
    Copy {
        /// The copy's name.
        #[n(0)]
        makes: ObjectId,
        /// The model.
        #[n(1)]
        object: ObjectId,
        /// The differing attributes.
        #[n(2)]
        template: Attributes,
    },
    /// Sets attributes.
    #[n(4)]
    Set {
        /// The object.
        #[n(0)]
        object: ObjectId,
        /// Its name afterwards: CKA_ID is part of a secret key's.
        #[n(1)]
        becomes: ObjectId,
        /// The new values.
        #[n(2)]
        template: Attributes,
        /// These are the values before a change that is undone. Those that the token does not set back, it keeps.
        #[n(3)]
        #[cbor(default)]
        is_undo: bool,
    },
    /// Destroys whatever of these is there.
    #[n(5)]
    Remove {
        /// One object, under the names that it may have half-way.
        #[n(0)]
        objects: Vec<ObjectId>,
    },
    /// Takes a key that a [`Replicator`](super::Replicator) brings.
    #[n(6)]
    Install {
        /// The key, and its other half.
        #[n(0)]
        makes: Vec<ObjectId>,
        /// As it was taken from the member where it was made.
        #[n(1)]
        key: hsmux_token::Blob,
    },
    /// Has it take away what it has brought, or what was made there for it.
    #[n(7)]
    Sweep {
        /// The mark that identifies the key.
        #[n(0)]
        expected: hsmux_token::Blob,
    },
}

/// The effect of a task on its member.
#[derive(Default, Debug)]
pub(super) struct TaskEffect {
    /// New objects, and objects with new attributes.
    pub made: Vec<Object>,
    /// Removed objects.
    pub gone: Vec<ObjectId>,
    /// Something came or went that the member's module does not see: it has to be connected anew.
    pub unseen: bool,
}

impl TaskEffect {
    /// Both, one after the other.
    pub fn then(&mut self, later: Self) {
        self.made.retain(|object| !later.gone.contains(&object.id));
        self.gone
            .retain(|id| !later.made.iter().any(|object| object.id == *id));
        self.made.extend(later.made);
        self.gone.extend(later.gone);
        self.unseen |= later.unseen;
    }
}

impl MemberTask {
    /// True if it holds a wrapped key.
    pub fn has_key(&self) -> bool {
        matches!(self, Self::Unwrap { .. } | Self::Install { .. })
    }

    /// The key of its member that opens its envelope, if it has one.
    pub fn opener(&self) -> Option<ObjectId> {
        match self {
            Self::Unwrap { envelope, .. } => Some(envelope.opener()),
            _ => None,
        }
    }

    /// The names of what it makes.
    pub fn makes(&self) -> &[ObjectId] {
        match self {
            Self::Unwrap { makes, .. }
            | Self::Create { makes, .. }
            | Self::Fetch { makes }
            | Self::Copy { makes, .. } => std::slice::from_ref(makes),
            Self::Install { makes, .. } => makes,
            Self::Set { .. } | Self::Remove { .. } | Self::Sweep { .. } => &[],
        }
    }

    /// The names of all objects that it makes, changes, looks at or takes away.
    pub fn objects(&self) -> Vec<ObjectId> {
        let others: &[ObjectId] = match self {
            Self::Set {
                object, becomes, ..
            } => &[*object, *becomes],
            Self::Copy { object, .. } => &[*object],
            Self::Remove { objects } => objects,
            _ => &[],
        };
        [self.makes(), others].concat()
    }

    /// The name that a secret key has before it has a check value: until hsmux sets one, where the token gives none.
    /// A process that dies within C_UnwrapKey can leave such an object of any type (SoftHSM stores the value last).
    pub fn passing_name(&self, serial: &str) -> Option<ObjectId> {
        match self {
            Self::Unwrap {
                makes,
                template,
                check_value: Some(_),
                ..
            } => {
                let bytes = |kind| template.get(kind).unwrap_or_default();
                let (id, label) = (bytes(CKA_ID), bytes(CKA_LABEL));
                Some(ObjectId::of_unidentified(makes.class, serial, id, label))
            }
            _ => None,
        }
    }
}
