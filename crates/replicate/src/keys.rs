//! New keys: made on one member as session objects that can be wrapped, stored on each as objects that
//! cannot.

use super::Coordinator;
use super::channel::{Channel, Envelope};
use super::member_task::MemberTask;
use super::members::PresentMember;
use super::objects;
use super::origin::KeyOrigin;
use super::plan::{ChangePlan, Duty, NewKey, Roster, too_few};
use super::template;
use super::token_access::{TokenAccess, is_absent};
use super::wrappable_key::{NewObject, WrappableKey};
use hsmux_software::{PublicKey, unchecked_kind, unchecked_pair};
use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Blob, Class, Error, KeyKind, Kind, Mechanism, ObjectId, ObjectRef, Operation,
    Result, Scope, Verb, key_type_name,
};

/// Tells whether an operation makes a private or secret key. The copy of a session object may be one.
pub(super) fn makes_key(operation: &Operation) -> bool {
    match operation {
        Operation::Generate { .. }
        | Operation::GeneratePair { .. }
        | Operation::Derive { .. }
        | Operation::Unwrap { .. }
        | Operation::Copy {
            object: ObjectRef::Session(_),
            ..
        } => true,
        Operation::Create { template, .. } => matches!(
            template::class(template),
            Some(Class::SECRET_KEY | Class::PRIVATE_KEY)
        ),
        _ => false,
    }
}

/// Makes the key on the first member that can, and plans its copies.
///
/// `source` is set where the operation works on session objects of one member.
pub(super) fn plan(
    coordinator: &Coordinator,
    roster: &Roster,
    operation: &Operation,
    source: Option<&PresentMember>,
) -> Result<ChangePlan> {
    let mut refused = None;
    for present in source.map_or(&roster.here[..], std::slice::from_ref) {
        let access = roster.access(present);
        // Check before the key is made: it could not leave the member. The copy of an object may be no key.
        if !matches!(operation, Operation::Copy { .. })
            && let Err(error) = Channel::can_leave(access)
        {
            refused.get_or_insert(error);
            continue;
        }
        let made = match WrappableKey::make(access, operation) {
            Ok(NewObject::Key(made)) => made,
            Ok(NewObject::Public(template)) => return objects::create(roster, &template),
            // Another member may hold the base key, or have the mechanism, or be up.
            Err(error) if lacks_what_it_takes(&error) || error.scope() == Scope::Token => {
                refused.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        return made.plan(coordinator, roster, access);
    }
    Err(refused.unwrap_or_else(|| too_few("no member is in service")))
}

/// Tells whether a member made nothing because it lacks the base key or the mechanism.
pub(super) fn lacks_what_it_takes(error: &Error) -> bool {
    is_absent(error)
        || matches!(
            error.kind(),
            Kind::NoMechanism | Kind::Vendor(CKR_MECHANISM_INVALID | CKR_FUNCTION_NOT_SUPPORTED)
        )
}

/// The error for a key of a type or curve that hsmux cannot compute with: its copies could not prove themselves.
/// `None` if the operation shows no such reason.
pub(super) fn only_on_one(operation: &Operation) -> Option<Error> {
    let kind = match operation {
        Operation::GeneratePair {
            mechanism, public, ..
        } => unchecked_pair(mechanism.kind, public),
        Operation::Create { template, .. } | Operation::Unwrap { template, .. } => {
            unchecked_kind(template)
        }
        _ => None,
    };
    kind.map(|kind| cannot_be_checked(&kind))
}

fn cannot_be_checked(kind: &str) -> Error {
    Error::request(
        Kind::Vendor(CKR_KEY_NOT_WRAPPABLE),
        format!("hsmux cannot check keys of type {kind}, so there is one copy of such a key"),
    )
}

/// True if no key of this kind can be copied, whatever its attributes: it stays on one member.
pub(super) fn stays_where_it_is_made(error: &Error) -> bool {
    error.kind() == Kind::Vendor(CKR_KEY_NOT_WRAPPABLE)
}

impl WrappableKey<'_> {
    /// Envelopes to all members that are there, and to those that are away and enrolled.
    fn plan(
        mut self,
        coordinator: &Coordinator,
        roster: &Roster,
        source: TokenAccess,
    ) -> Result<ChangePlan> {
        let new = NewKey {
            is_generated: matches!(self.origin, KeyOrigin::Generated),
            has_new_id: self.given_id().is_none(),
        };
        let works = self.works(source)?;
        let mut plan = ChangePlan {
            makes: works.iter().map(StoredKeyPart::makes).collect(),
            origins: works.iter().map(|work| self.origin(work)).collect(),
            need: roster.need,
            ..ChangePlan::default()
        };
        let mut refused = None;
        for present in &roster.here {
            let access = roster.access(present);
            let duty = coordinator
                .transport
                .enrol(access, &present.serial)
                .and_then(|pin| Channel::to(source, &pin)?.seal(self.key))
                .and_then(|envelope| {
                    let works = works.iter().map(|work| work.sealed(&envelope)).collect();
                    Duty::storing(&present.serial, Some(access), works, new)
                });
            match duty {
                Ok(duty) => plan.duties.push(duty),
                Err(error) => {
                    refused.get_or_insert(error);
                }
            }
        }
        if let Some(error) = refused {
            if plan.duties.len() < roster.need {
                return Err(error);
            }
            tracing::warn!(%error, "the new key is not on every member");
        }
        for (name, serial) in roster.later() {
            let pin = serial.and_then(|s| Some((s, coordinator.transport.pin(s)?)));
            let Some((serial, pin)) = pin else {
                if coordinator.replicas == 0 {
                    return Err(too_few(format!(
                        "{name} is away and has no transport key yet, so a new key could not be \
                         kept for it: bring it back, remove it, or say how many members are enough \
                         (replicas = N)"
                    )));
                }
                continue;
            };
            let envelope = Channel::to(source, &pin)?.seal(self.key)?;
            let works = works.iter().map(|work| work.sealed(&envelope)).collect();
            plan.duties.push(Duty::storing(serial, None, works, new)?);
        }
        Ok(plan)
    }

    /// The objects for each member, with their names.
    fn works(&mut self, source: TokenAccess) -> Result<Vec<StoredKeyPart>> {
        if self.class == Class::SECRET_KEY {
            return Ok(vec![self.secret(source)?]);
        }
        let half = match &self.public {
            Some((_, half)) => half.clone(),
            None => known_half(&template::over(&self.asked, &self.found), source)?,
        };
        if let Some(curve) = half.unchecked_curve() {
            return Err(cannot_be_checked(&curve));
        }
        let makes = ObjectId::of_public_key(Class::PRIVATE_KEY, half.spki());
        self.name_it(&makes.name[..20]);
        let mut works = Vec::new();
        // The public half first: by it the token can name the private one.
        if let Some((asked, half)) = &self.public {
            let id = self.asked.get(CKA_ID).unwrap_or_default().to_vec();
            let mut template = template::over(&half.to_attributes(), &template::public(asked));
            if template.get(CKA_ID).is_none_or(<[u8]>::is_empty) {
                template.set(CKA_ID, id);
            }
            works.push(StoredKeyPart::Public {
                makes: makes.with_class(Class::PUBLIC_KEY),
                template: template::created(&template),
            });
        }
        let template = template::copy(&self.asked, &self.found);
        works.push(StoredKeyPart::Key {
            makes,
            template: template.with(CKA_PUBLIC_KEY_INFO, half.spki().to_vec()),
            check_value: None,
        });
        Ok(works)
    }

    fn secret(&mut self, source: TokenAccess) -> Result<StoredKeyPart> {
        self.name_it(&super::random::<16>()?);
        let key_type = self
            .found
            .number(CKA_KEY_TYPE)
            .unwrap_or(CKK_GENERIC_SECRET);
        // Computed where it can be: SoftHSM 2.6.1 gives derived AES keys that of another key type.
        let given = self.found.get(CKA_CHECK_VALUE).filter(|v| !v.is_empty());
        let check_value = match (check_value(source, self.key, key_type), given) {
            (Ok(computed), _) => computed,
            (Err(_), Some(given)) => given.to_vec(),
            (Err(error), None) => return Err(error),
        };
        let template = template::copy(&self.asked, &self.found);
        let id = template.get(CKA_ID).unwrap_or_default();
        Ok(StoredKeyPart::Key {
            makes: ObjectId::of_secret_key(key_type, id, &check_value),
            check_value: Some(Blob(check_value.into())),
            template,
        })
    }

    /// How an object was made, for all its copies.
    fn origin(&self, stored: &StoredKeyPart) -> (ObjectId, Attributes) {
        match stored {
            StoredKeyPart::Key {
                makes, template, ..
            } => (*makes, self.origin.of_key(&self.found, template)),
            StoredKeyPart::Public { makes, .. } => (*makes, KeyOrigin::of_public_half(&self.found)),
        }
    }

    /// Gives the key a CKA_ID where the caller gave none: on a token without one, halves and copies
    /// cannot be told.
    fn name_it(&mut self, id: &[u8]) {
        let given = self.given_id().map(<[u8]>::to_vec);
        self.asked.set(CKA_ID, given.unwrap_or_else(|| id.to_vec()));
    }

    /// The caller's CKA_ID.
    fn given_id(&self) -> Option<&[u8]> {
        let mut given = [&self.asked, &self.found].into_iter();
        given.find_map(|a| a.get(CKA_ID).filter(|id| !id.is_empty()))
    }
}

/// An object to be stored on each member; the key's envelope differs from one to the other.
enum StoredKeyPart {
    Key {
        makes: ObjectId,
        template: Attributes,
        check_value: Option<Blob>,
    },
    Public {
        makes: ObjectId,
        template: Attributes,
    },
}

impl StoredKeyPart {
    fn makes(&self) -> ObjectId {
        match self {
            Self::Key { makes, .. } | Self::Public { makes, .. } => *makes,
        }
    }

    fn sealed(&self, envelope: &Envelope) -> MemberTask {
        match self {
            Self::Key {
                makes,
                template,
                check_value,
            } => MemberTask::Unwrap {
                makes: *makes,
                envelope: envelope.clone(),
                template: template.clone(),
                check_value: check_value.clone(),
            },
            Self::Public { makes, template } => MemberTask::Create {
                makes: *makes,
                template: template.clone(),
            },
        }
    }
}

/// CKA_CHECK_VALUE as the standard computes it for block ciphers (PKCS#11 3.0, section 4.10.2): the
/// first three bytes of a block of zeros, enciphered.
pub(super) fn check_value(access: TokenAccess, key: ObjectRef, key_type: u64) -> Result<Vec<u8>> {
    let Some(cipher) = KeyKind::of(key_type).block_cipher() else {
        return Err(Error::request(
            Kind::Unsupported,
            format!(
                "{}: gives no check value (CKA_CHECK_VALUE) for a key of type {}, so its copies could not be told to \
                 be the same",
                access.name,
                key_type_name(key_type)
            ),
        ));
    };
    let zeros = vec![0; cipher.len];
    let text = access.with_key(Verb::Encrypt, key, Mechanism::plain(cipher.ecb), zeros)?;
    Ok(text[..3.min(text.len())].to_vec())
}

/// The public half of a private key that comes alone: from itself, or from an object of the token
/// with the same CKA_ID.
fn known_half(private: &Attributes, source: TokenAccess) -> Result<PublicKey> {
    if let Ok(half) = PublicKey::from_attributes(private) {
        return Ok(half);
    }
    let snapshot = source.token.objects().map_err(|e| e.at(source.name))?;
    let public = snapshot
        .objects
        .iter()
        .filter(|object| matches!(object.id.class, Class::PUBLIC_KEY | Class::CERTIFICATE));
    let mut all: Vec<Attributes> = public.map(|object| object.attributes.clone()).collect();
    all.push(private.clone());
    let named = hsmux_software::identify("", all);
    let info = named
        .last()
        .and_then(|o| o.attributes.get(CKA_PUBLIC_KEY_INFO));
    let info = info.ok_or_else(|| {
        Error::request(
            Kind::Vendor(CKR_TEMPLATE_INCOMPLETE),
            "the private key does not tell its public half, without which its copies cannot be \
             proved: first import the public key or the certificate with the same CKA_ID",
        )
    })?;
    PublicKey::from_spki(info)
}
