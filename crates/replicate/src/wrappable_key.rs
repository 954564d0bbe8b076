//! A new key as a session object that can be wrapped, on the token where it is made.

use super::origin::KeyOrigin;
use super::template;
use super::token_access::{TemporaryObject, TokenAccess};
use hsmux_software::PublicKey;
use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Class, Error, KeyKind, Kind, Mechanism, ObjectRef, Operation, Result,
};

/// The object that an operation has made.
pub(super) enum NewObject<'a> {
    Key(WrappableKey<'a>),
    /// A session object that is no key was to be copied: under this template.
    Public(Attributes),
}

/// A key as a session object of the token where it was made.
pub(super) struct WrappableKey<'a> {
    /// For operations on that token.
    pub key: ObjectRef,
    /// Destroyed when the plan is made. The copy of a session object leaves that one alone.
    _held: Vec<TemporaryObject<'a>>,
    pub class: Class,
    /// The requested attributes.
    pub asked: Attributes,
    /// The token's attributes.
    pub found: Attributes,
    /// How it was made.
    pub origin: KeyOrigin,
    /// For a pair: what was asked of the public half, and the half itself.
    pub public: Option<(Attributes, PublicKey)>,
}

impl<'a> WrappableKey<'a> {
    /// Carries the operation out for a session object.
    pub fn make(access: TokenAccess<'a>, operation: &Operation) -> Result<NewObject<'a>> {
        match operation {
            Operation::GeneratePair {
                mechanism,
                public,
                private,
            } => Self::pair(access, mechanism, public, private).map(NewObject::Key),
            Operation::Copy { object, template } => Self::copied(access, *object, template),
            _ => {
                let mut passing = operation.clone();
                let template = template_of(&mut passing)?;
                let asked = template.clone();
                *template = template::passing(&asked);
                if matches!(operation, Operation::Unwrap { .. }) && is_block_cipher_key(&asked) {
                    // For the check value; the copies have what was asked.
                    template.set_flag(CKA_ENCRYPT, true);
                }
                let held = access.make_session(&passing)?;
                let found = held.attributes().clone();
                Ok(NewObject::Key(Self {
                    key: held.reference(),
                    _held: vec![held],
                    class: class_of(&found, access)?,
                    asked,
                    found,
                    origin: match operation {
                        Operation::Generate { .. } => KeyOrigin::Generated,
                        _ => KeyOrigin::Brought,
                    },
                    public: None,
                }))
            }
        }
    }

    fn pair(
        access: TokenAccess<'a>,
        mechanism: &Mechanism,
        public: &Attributes,
        private: &Attributes,
    ) -> Result<Self> {
        if private.flag(CKA_TOKEN) != Some(true) {
            return Err(Error::request(
                Kind::Vendor(CKR_TEMPLATE_INCONSISTENT),
                "C_GenerateKeyPair: a private session key with a public token object is not \
                 offered: create the public key as an object of its own",
            ));
        }
        let generate = Operation::GeneratePair {
            mechanism: mechanism.clone(),
            public: public.clone().with_flag(CKA_TOKEN, false),
            private: template::passing(private),
        };
        let mut held = access.make_sessions(&generate)?;
        let at = held
            .iter()
            .position(|h| h.attributes().number(CKA_CLASS) == Some(CKO_PRIVATE_KEY));
        let (Some(at), 2) = (at, held.len()) else {
            return Err(Error::protocol(format!(
                "{}: C_GenerateKeyPair answered no pair",
                access.name
            )));
        };
        let half =
            PublicKey::from_attributes(held[1 - at].attributes()).map_err(|e| e.at(access.name))?;
        held.swap(0, at);
        Ok(Self {
            key: held[0].reference(),
            class: Class::PRIVATE_KEY,
            asked: private.clone(),
            found: held[0].attributes().clone(),
            origin: KeyOrigin::Generated,
            public: Some((public.clone(), half)),
            _held: held,
        })
    }

    fn copied(
        access: TokenAccess<'a>,
        object: ObjectRef,
        changes: &Attributes,
    ) -> Result<NewObject<'a>> {
        let found = access.make(&Operation::Read { object })?.object.attributes;
        let asked = template::over(&found, changes);
        let class = class_of(&found, access)?;
        if !matches!(class, Class::PRIVATE_KEY | Class::SECRET_KEY) {
            return Ok(NewObject::Public(template::created(&asked)));
        }
        Ok(NewObject::Key(Self {
            key: object,
            _held: Vec::new(),
            class,
            asked,
            found,
            origin: KeyOrigin::Copied,
            public: None,
        }))
    }
}

fn class_of(found: &Attributes, access: TokenAccess) -> Result<Class> {
    template::class(found)
        .ok_or_else(|| Error::protocol(format!("{}: an object without a class", access.name)))
}

fn template_of(operation: &mut Operation) -> Result<&mut Attributes> {
    match operation {
        Operation::Generate { template, .. }
        | Operation::Derive { template, .. }
        | Operation::Unwrap { template, .. }
        | Operation::Create { template, .. } => Ok(template),
        other => Err(Error::request(
            Kind::Unsupported,
            format!("{} makes no key", other.call()),
        )),
    }
}

fn is_block_cipher_key(template: &Attributes) -> bool {
    let key_type = template.number(CKA_KEY_TYPE);
    key_type.is_some_and(|key_type| KeyKind::of(key_type).block_cipher().is_some())
}
