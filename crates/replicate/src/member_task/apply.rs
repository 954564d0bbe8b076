//! What a task does on its member.

use super::{MemberTask, TaskEffect};
use crate::channel::{Envelope, Opener};
use crate::members::PresentMember;
use crate::template;
use crate::token_access::{self, TokenAccess};
use hsmux_software::refuses_template;
use hsmux_token::ck::{
    CKA_CHECK_VALUE, CKA_PUBLIC_KEY_INFO, CKR_ACTION_PROHIBITED, CKR_ATTRIBUTE_READ_ONLY,
    CKR_ATTRIBUTE_TYPE_INVALID,
};
use hsmux_token::{Attributes, Error, Kind, Made, Object, ObjectId, Operation, Outcome, Result};

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
                Err(error) if *is_undo && is_one_way(&error) => {
                    set_back(access, *object, *becomes, template)?.ok_or(error)
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
        Ok(_) => match access.make(&Operation::Read { object }) {
            // Somebody has read the token meanwhile, which knows it by its new name only.
            Err(error) if token_access::is_absent(&error) => Ok(made.clone()),
            read => read,
        },
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

/// The error of a task that has done something, though the token refused what came then.
fn after_it(error: &Error) -> Error {
    Error::token(error.kind(), error.to_string())
}

/// Sets back what the token lets be set back; nothing if it does not get its name back.
fn set_back(
    access: TokenAccess,
    object: ObjectId,
    becomes: ObjectId,
    template: &Attributes,
) -> Result<Option<TaskEffect>> {
    for attribute in &template.0 {
        let set = Operation::SetAttributes {
            object: object.into(),
            template: Attributes(vec![attribute.clone()]),
        };
        match access.run(&set) {
            Err(error) if is_one_way(&error) => {
                tracing::warn!(%error, "an attribute is not set back");
            }
            set => drop(set?),
        }
    }
    let there = access.find_renamed(object)?;
    Ok(there
        .filter(|there| there.id == becomes)
        .map(|there| TaskEffect {
            made: vec![there],
            gone: (object != becomes).then_some(object).into_iter().collect(),
            unseen: false,
        }))
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
    // It was fetched by its new name although the old one was there; or made again after it had been renamed.
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
    let is_empty = template.0.is_empty();
    let done = if is_empty {
        Ok(Outcome::Done)
    } else {
        access.run(&set)
    };
    let there = match done {
        // It has its new name when it is read by the old one.
        Ok(_) => match access
            .find_renamed(object)
            .map_err(|error| after_it(&error))?
        {
            None => access.find(becomes).map_err(|error| after_it(&error))?,
            there => there,
        },
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
