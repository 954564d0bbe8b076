//! The task of one member in a change. Every task may run twice: existing objects stay.

use super::channel::{Envelope, Opener};
use super::members::PresentMember;
use super::template;
use super::token_access::{self, TokenAccess};
use hsmux_software::refuses_template;
use hsmux_token::ck::{
    CKA_CHECK_VALUE, CKA_ID, CKA_LABEL, CKA_PUBLIC_KEY_INFO, CKR_ACTION_PROHIBITED,
    CKR_ATTRIBUTE_READ_ONLY, CKR_ATTRIBUTE_TYPE_INVALID,
};
use hsmux_token::{Attributes, Borrow, Error, Kind, Made, Object, ObjectId, Operation, Result};
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
    /// Runs the task. `others` are members that an object may be copied from; with `again` it may have run before,
    /// and the member is asked first.
    pub fn apply(
        &self,
        opener: &mut Opener,
        others: &[PresentMember],
        again: bool,
    ) -> Result<TaskEffect> {
        let access = opener.access();
        match self {
            Self::Remove { objects } => remove(access, objects),
            Self::Install { makes, key } => install(opener, makes, key, again),
            Self::Sweep { expected } => {
                let unseen = opener.replicator()?.sweep(&access.token.info(), expected)?;
                Ok(TaskEffect {
                    unseen,
                    ..TaskEffect::default()
                })
            }
            Self::Set {
                object,
                becomes,
                template,
                is_undo,
            } => match set(access, *object, *becomes, template, again) {
                Err(error) if *is_undo && object == becomes && is_one_way(&error) => {
                    tracing::warn!(%error, "the token does not set it back");
                    Ok(TaskEffect::default())
                }
                set => set,
            },
            // A member that has no model has no use for its copy.
            Self::Copy { object, .. } if access.find(*object)?.is_none() => {
                Ok(TaskEffect::default())
            }
            Self::Unwrap { makes, .. }
            | Self::Create { makes, .. }
            | Self::Fetch { makes }
            | Self::Copy { makes, .. } => {
                let there = if again { access.find(*makes)? } else { None };
                let object = match there {
                    Some(there) => there,
                    None => self.make(*makes, opener, others)?,
                };
                Ok(TaskEffect {
                    made: vec![object],
                    ..TaskEffect::default()
                })
            }
        }
    }

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

    fn make(
        &self,
        makes: ObjectId,
        opener: &mut Opener,
        others: &[PresentMember],
    ) -> Result<Object> {
        let access = opener.access();
        let made = match self {
            Self::Unwrap {
                envelope,
                template,
                check_value,
                ..
            } => {
                let made = unwrap(opener, envelope, template)?;
                match check_value {
                    Some(value) => confirm(access, &made, value)?,
                    None => made,
                }
            }
            Self::Copy {
                object, template, ..
            } => access.make(&Operation::Copy {
                object: (*object).into(),
                template: template.clone(),
            })?,
            Self::Create { template, .. } => access.make(&Operation::Create {
                template: template.clone(),
                near: None,
            })?,
            _ => access.make(&Operation::Create {
                template: fetch(makes, access, others)?,
                near: None,
            })?,
        };
        if made.object.id == makes {
            return Ok(made.object);
        }
        // It may have got its name only now.
        access.find(makes)?.ok_or_else(|| {
            // The token made another key, or one that cannot be told apart: remove it.
            let _ = access.destroy(token_access::reference(&made));
            Error::token(
                Kind::Unproved,
                format!(
                    "{}: made {:?} where {makes:?} was expected",
                    access.name, made.object.id
                ),
            )
        })
    }
}

/// Has a key brought that is not there.
fn install(
    opener: &Opener,
    makes: &[ObjectId],
    key: &hsmux_token::Blob,
    again: bool,
) -> Result<TaskEffect> {
    let access = opener.access();
    if again {
        let there = makes.iter().map(|id| access.find(*id));
        let there: Option<Vec<Object>> = there.collect::<Result<_>>()?;
        if let Some(made) = there {
            return Ok(TaskEffect {
                made,
                ..TaskEffect::default()
            });
        }
    }
    opener.replicator()?.put(&access.token.info(), key)?;
    Ok(TaskEffect {
        unseen: true,
        ..TaskEffect::default()
    })
}

/// Takes a key out of its envelope; by CKA_PUBLIC_KEY_INFO, where the token keeps it, a private key
/// tells what it is.
fn unwrap(opener: &mut Opener, envelope: &Envelope, template: &Attributes) -> Result<Made> {
    match opener.open(envelope, template) {
        Err(error) if refuses_template(&error) && template.get(CKA_PUBLIC_KEY_INFO).is_some() => {
            let mut without = template.clone();
            without.remove(CKA_PUBLIC_KEY_INFO);
            opener.open(envelope, &without)
        }
        result => result,
    }
}

/// Has the token compare the check value, and keep it: the name of a secret key rests on it.
fn confirm(access: TokenAccess, made: &Made, check_value: &[u8]) -> Result<Made> {
    let object = token_access::reference(made);
    let set = access.run(&Operation::SetAttributes {
        object,
        template: Attributes::default().with(CKA_CHECK_VALUE, check_value.to_vec()),
    });
    match set {
        Ok(_) => access.make(&Operation::Read { object }),
        // It shows its own, or none: then the name tells.
        Err(error)
            if matches!(
                error.code(),
                Some(CKR_ATTRIBUTE_READ_ONLY | CKR_ATTRIBUTE_TYPE_INVALID)
            ) =>
        {
            Ok(made.clone())
        }
        Err(error) => {
            let _ = access.destroy(object);
            Err(error)
        }
    }
}

fn fetch(id: ObjectId, access: TokenAccess, others: &[PresentMember]) -> Result<Attributes> {
    for other in others {
        let from = TokenAccess {
            name: &other.name,
            token: &*other.token,
            limit: access.limit,
        };
        if let Ok(Some(found)) = from.find(id) {
            return Ok(template::created(&found.attributes));
        }
    }
    Err(Error::token(
        Kind::NoReplica,
        format!(
            "{}: no other member has {id:?} to take it from",
            access.name
        ),
    ))
}

/// An attribute that the token does not change, or in one direction only.
fn is_one_way(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(CKR_ATTRIBUTE_READ_ONLY | CKR_ACTION_PROHIBITED)
    )
}

fn set(
    access: TokenAccess,
    object: ObjectId,
    becomes: ObjectId,
    template: &Attributes,
    again: bool,
) -> Result<TaskEffect> {
    // It was fetched by its new name although the old one was there.
    if again
        && object != becomes
        && let Some(there) = access.find(becomes)?
        && access.find(object)?.is_some()
    {
        let mut effect = remove(access, &[object])?;
        effect.made.push(there);
        return Ok(effect);
    }
    let set = Operation::SetAttributes {
        object: object.into(),
        template: template.clone(),
    };
    let there = match access.run(&set) {
        // It has its new name when it is read by the old one.
        Ok(_) => access.find_renamed(object)?,
        Err(error) if token_access::is_absent(&error) => access.find(becomes)?,
        Err(error) => return Err(error),
    };
    Ok(TaskEffect {
        made: there.into_iter().collect(),
        gone: (object != becomes).then_some(object).into_iter().collect(),
        unseen: false,
    })
}

fn remove(access: TokenAccess, objects: &[ObjectId]) -> Result<TaskEffect> {
    let mut effect = TaskEffect::default();
    for id in objects {
        // Also one that somebody else has deleted meanwhile is gone.
        access.destroy((*id).into())?;
        effect.gone.push(*id);
    }
    Ok(effect)
}
