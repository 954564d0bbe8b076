//! What one member does for a change. Every kind of work may be done twice: what is there is left.

use super::channel::{Envelope, Opener};
use super::members::Present;
use super::site::{self, Site};
use super::template;
use hsmux_token::ck::{CKA_CHECK_VALUE, CKR_ATTRIBUTE_READ_ONLY, CKR_ATTRIBUTE_TYPE_INVALID};
use hsmux_token::{Attributes, Borrow, Error, Kind, Object, ObjectId, Operation, Result};
use minicbor::{Decode, Encode};

/// One step of one member.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(context_bound = "Borrow")]
pub(super) enum Work {
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
    /// Takes an object over from another member: for what must not stand in the journal.
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
        /// What differs.
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
    },
    /// Destroys whatever of these is there.
    #[n(5)]
    Remove {
        /// One object, under the names that it may have half-way.
        #[n(0)]
        objects: Vec<ObjectId>,
    },
}

/// What a work has left on its member.
#[derive(Default, Debug)]
pub(super) struct Effect {
    /// What is there now, or is there with new attributes.
    pub made: Vec<Object>,
    /// What is gone.
    pub gone: Vec<ObjectId>,
}

impl Work {
    /// Does it. `others` are members that an object may be taken over from.
    pub fn apply(&self, opener: &mut Opener, others: &[Present]) -> Result<Effect> {
        let site = opener.site();
        match self {
            Self::Remove { objects } => remove(site, objects),
            Self::Set {
                object,
                becomes,
                template,
            } => set(site, *object, *becomes, template),
            // A member that has no model has no use for its copy.
            Self::Copy { object, .. } if site.find(*object)?.is_none() => Ok(Effect::default()),
            Self::Unwrap { makes, .. }
            | Self::Create { makes, .. }
            | Self::Fetch { makes }
            | Self::Copy { makes, .. } => {
                let object = match site.find(*makes)? {
                    Some(there) => there,
                    None => self.make(*makes, opener, others)?,
                };
                Ok(Effect {
                    made: vec![object],
                    ..Effect::default()
                })
            }
        }
    }

    /// What takes the work back on the token with this serial number.
    pub fn undo(&self, serial: &str) -> Option<Self> {
        match self {
            Self::Unwrap {
                makes, template, ..
            }
            | Self::Create { makes, template } => {
                let mut objects = vec![*makes];
                // Until its check value or its public half is there, only its token can name a key.
                let unnamed = hsmux_software::identify(serial, vec![template.clone()]);
                objects.extend(unnamed.first().map(|object| object.id));
                Some(Self::Remove { objects })
            }
            Self::Fetch { makes } | Self::Copy { makes, .. } => Some(Self::Remove {
                objects: vec![*makes],
            }),
            Self::Set { .. } | Self::Remove { .. } => None,
        }
    }

    fn make(&self, makes: ObjectId, opener: &mut Opener, others: &[Present]) -> Result<Object> {
        let site = opener.site();
        let made = match self {
            Self::Unwrap {
                envelope,
                template,
                check_value,
                ..
            } => {
                let made = opener.open(envelope, template)?;
                if let Some(value) = check_value
                    && made.object.id != makes
                {
                    confirm(site, made.object.id, value)?;
                }
                made
            }
            Self::Copy {
                object, template, ..
            } => site.make(&Operation::Copy {
                object: (*object).into(),
                template: template.clone(),
            })?,
            Self::Create { template, .. } => site.make(&Operation::Create {
                template: template.clone(),
            })?,
            _ => site.make(&Operation::Create {
                template: fetch(makes, site, others)?,
            })?,
        };
        if made.object.id == makes {
            return Ok(made.object);
        }
        // It may have got its name only now.
        site.find(makes)?.ok_or_else(|| {
            // What came out is another key, or one that cannot be told apart: it must not stay.
            let _ = site.destroy(site::reference(&made));
            Error::token(
                Kind::Unproved,
                format!(
                    "{}: made {:?} where {makes:?} was expected",
                    site.name, made.object.id
                ),
            )
        })
    }
}

/// Has the token compare the check value, and keep it: the name of a secret key rests on it.
fn confirm(site: Site, key: ObjectId, check_value: &[u8]) -> Result<()> {
    let set = site.run(&Operation::SetAttributes {
        object: key.into(),
        template: Attributes::default().with(CKA_CHECK_VALUE, check_value.to_vec()),
    });
    match set {
        Ok(_) => Ok(()),
        // It shows its own, or none: then the name tells.
        Err(error)
            if matches!(
                error.code(),
                Some(CKR_ATTRIBUTE_READ_ONLY | CKR_ATTRIBUTE_TYPE_INVALID)
            ) =>
        {
            Ok(())
        }
        Err(error) => {
            let _ = site.destroy(key.into());
            Err(error)
        }
    }
}

fn fetch(id: ObjectId, site: Site, others: &[Present]) -> Result<Attributes> {
    for other in others {
        let from = Site {
            name: &other.name,
            token: &*other.token,
            deadline: site.deadline,
        };
        if let Ok(Some(found)) = from.find(id) {
            return Ok(template::created(&found.attributes));
        }
    }
    Err(Error::token(
        Kind::NoReplica,
        format!("{}: no other member has {id:?} to take it from", site.name),
    ))
}

fn set(site: Site, object: ObjectId, becomes: ObjectId, template: &Attributes) -> Result<Effect> {
    let renamed = object != becomes;
    if site.find(object)?.is_some() {
        site.run(&Operation::SetAttributes {
            object: object.into(),
            template: template.clone(),
        })?;
    }
    Ok(Effect {
        made: site.find(becomes)?.into_iter().collect(),
        gone: if renamed { vec![object] } else { vec![] },
    })
}

fn remove(site: Site, objects: &[ObjectId]) -> Result<Effect> {
    let mut effect = Effect::default();
    for id in objects {
        if site.destroy((*id).into())? {
            effect.gone.push(*id);
        }
    }
    Ok(effect)
}
