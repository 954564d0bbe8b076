//! What can be asked of a token. One shape for every keyed operation: sign and decrypt differ in a word.

use crate::{
    Attributes, Blob, Borrow, Class, Mechanism, Object, ObjectId, ObjectRef, SessionObject, Verb,
};
use minicbor::{Decode, Encode};

/// One request to a token.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(context_bound = "Borrow")]
pub enum Operation {
    /// A keyed operation on data. Repeatable.
    #[n(0)]
    Use {
        /// What to do.
        #[n(0)]
        verb: Verb,
        /// With which key.
        #[n(1)]
        key: ObjectRef,
        /// How.
        #[n(2)]
        mechanism: Mechanism,
        /// On what.
        #[n(3)]
        data: Blob,
    },
    /// C_GenerateRandom: this many bytes. Repeatable.
    #[n(1)]
    Random {
        /// Bytes wanted.
        #[n(0)]
        len: u32,
    },
    /// C_GenerateKey.
    #[n(2)]
    Generate {
        /// How.
        #[n(0)]
        mechanism: Mechanism,
        /// The key's attributes.
        #[n(1)]
        template: Attributes,
    },
    /// C_GenerateKeyPair. The outcome lists the public key first.
    #[n(3)]
    GeneratePair {
        /// How.
        #[n(0)]
        mechanism: Mechanism,
        /// The public key's attributes.
        #[n(1)]
        public: Attributes,
        /// The private key's attributes.
        #[n(2)]
        private: Attributes,
    },
    /// C_DeriveKey.
    #[n(4)]
    Derive {
        /// The base key.
        #[n(0)]
        key: ObjectRef,
        /// How.
        #[n(1)]
        mechanism: Mechanism,
        /// The new key's attributes.
        #[n(2)]
        template: Attributes,
    },
    /// C_WrapKey. Repeatable.
    #[n(5)]
    Wrap {
        /// The wrapping key.
        #[n(0)]
        wrapping: ObjectRef,
        /// How.
        #[n(1)]
        mechanism: Mechanism,
        /// The key that is wrapped.
        #[n(2)]
        key: ObjectRef,
    },
    /// C_UnwrapKey.
    #[n(6)]
    Unwrap {
        /// The unwrapping key.
        #[n(0)]
        unwrapping: ObjectRef,
        /// How.
        #[n(1)]
        mechanism: Mechanism,
        /// The wrapped key.
        #[n(2)]
        wrapped: Blob,
        /// The new key's attributes.
        #[n(3)]
        template: Attributes,
    },
    /// C_CreateObject.
    #[n(7)]
    Create {
        /// The object's attributes.
        #[n(0)]
        template: Attributes,
        /// A session object is made on a member that has this object, so that both can be used together.
        #[n(1)]
        near: Option<ObjectRef>,
    },
    /// C_CopyObject.
    #[n(8)]
    Copy {
        /// The object that is copied.
        #[n(0)]
        object: ObjectRef,
        /// What differs in the copy.
        #[n(1)]
        template: Attributes,
    },
    /// C_DestroyObject.
    #[n(9)]
    Destroy {
        /// The object.
        #[n(0)]
        object: ObjectRef,
    },
    /// C_SetAttributeValue.
    #[n(10)]
    SetAttributes {
        /// The object.
        #[n(0)]
        object: ObjectRef,
        /// The new values.
        #[n(1)]
        template: Attributes,
    },
    /// C_GetAttributeValue of a session object: what can be read of it.
    #[n(11)]
    Read {
        /// The object.
        #[n(0)]
        object: ObjectRef,
    },
    /// C_SignInit and its like without the step that follows: whether a token takes the key with this mechanism and
    /// its parameter. Repeatable. Peers know it from version 3 of the frames on.
    #[n(12)]
    Begin {
        /// What would be done.
        #[n(0)]
        verb: Verb,
        /// With which key.
        #[n(1)]
        key: ObjectRef,
        /// How.
        #[n(2)]
        mechanism: Mechanism,
    },
}

impl Operation {
    /// Whether a second run on another replica gives an equivalent answer.
    ///
    /// Only such operations fail over. An operation that makes, changes or removes an object never does.
    pub const fn repeatable(&self) -> bool {
        matches!(
            self,
            Self::Use { .. }
                | Self::Random { .. }
                | Self::Wrap { .. }
                | Self::Read { .. }
                | Self::Begin { .. }
        )
    }

    /// Whether a key of a token may leave it by this: wrapped, or as a copy that is, or as what some
    /// derivations make of a secret key, from which it can be told.
    pub fn exports(&self) -> bool {
        if let Self::Derive { key, .. } = self {
            return matches!(key, ObjectRef::Token(id) if id.class == Class::SECRET_KEY);
        }
        let (Self::Wrap { key: object, .. } | Self::Copy { object, .. }) = self else {
            return false;
        };
        let key = |id: &ObjectId| matches!(id.class, Class::PRIVATE_KEY | Class::SECRET_KEY);
        matches!(object, ObjectRef::Token(id) if key(id))
    }

    /// Whether it changes token objects, so that a read-only listener refuses it.
    pub fn changes_token(&self) -> bool {
        let makes = |template: &Attributes| template.flag(crate::ck::CKA_TOKEN) == Some(true);
        let of_token = |object: &ObjectRef| matches!(object, ObjectRef::Token(_));
        match self {
            Self::Use { .. }
            | Self::Random { .. }
            | Self::Wrap { .. }
            | Self::Read { .. }
            | Self::Begin { .. } => false,
            Self::Generate { template, .. }
            | Self::Derive { template, .. }
            | Self::Unwrap { template, .. }
            | Self::Create { template, .. } => makes(template),
            Self::GeneratePair {
                public, private, ..
            } => makes(public) || makes(private),
            // A copy keeps CKA_TOKEN of its model unless the template says otherwise.
            Self::Copy { object, template } => template
                .flag(crate::ck::CKA_TOKEN)
                .unwrap_or(of_token(object)),
            Self::Destroy { object } | Self::SetAttributes { object, .. } => of_token(object),
        }
    }

    /// Whether it makes session objects, which end with their session.
    pub fn makes_session_objects(&self) -> bool {
        match self {
            Self::Generate { .. }
            | Self::Derive { .. }
            | Self::Unwrap { .. }
            | Self::Create { .. }
            | Self::Copy { .. } => !self.changes_token(),
            Self::GeneratePair {
                public, private, ..
            } => [public, private]
                .iter()
                .any(|template| template.flag(crate::ck::CKA_TOKEN) != Some(true)),
            Self::Use { .. }
            | Self::Random { .. }
            | Self::Wrap { .. }
            | Self::Destroy { .. }
            | Self::SetAttributes { .. }
            | Self::Read { .. }
            | Self::Begin { .. } => false,
        }
    }

    /// The objects that it works on, the key first, or is to be near to.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        let (first, second) = match self {
            Self::Use { key, .. } | Self::Derive { key, .. } | Self::Begin { key, .. } => {
                (Some(key), None)
            }
            Self::Wrap { wrapping, key, .. } => (Some(wrapping), Some(key)),
            Self::Unwrap { unwrapping, .. } => (Some(unwrapping), None),
            Self::Copy { object, .. }
            | Self::Destroy { object }
            | Self::SetAttributes { object, .. }
            | Self::Read { object } => (Some(object), None),
            Self::Create { near, .. } => (near.as_ref(), None),
            Self::Random { .. } | Self::Generate { .. } | Self::GeneratePair { .. } => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The same, to be rewritten: a pool and a worker number session objects differently.
    pub fn objects_mut(&mut self) -> impl Iterator<Item = &mut ObjectRef> {
        let (first, second) = match self {
            Self::Use { key, .. } | Self::Derive { key, .. } | Self::Begin { key, .. } => {
                (Some(key), None)
            }
            Self::Wrap { wrapping, key, .. } => (Some(wrapping), Some(key)),
            Self::Unwrap { unwrapping, .. } => (Some(unwrapping), None),
            Self::Copy { object, .. }
            | Self::Destroy { object }
            | Self::SetAttributes { object, .. }
            | Self::Read { object } => (Some(object), None),
            Self::Create { near, .. } => (near.as_mut(), None),
            Self::Random { .. } | Self::Generate { .. } | Self::GeneratePair { .. } => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// For a use of one of the token's keys: the verb, the key, the mechanism and the data.
    pub fn key_use(&self) -> Option<(Verb, ObjectId, &Mechanism, &Blob)> {
        match self {
            Self::Use {
                verb,
                key: ObjectRef::Token(key),
                mechanism,
                data,
            } => Some((*verb, *key, mechanism, data)),
            _ => None,
        }
    }

    /// The mechanism, where there is one.
    pub fn mechanism(&self) -> Option<&Mechanism> {
        match self {
            Self::Use { mechanism, .. }
            | Self::Generate { mechanism, .. }
            | Self::GeneratePair { mechanism, .. }
            | Self::Derive { mechanism, .. }
            | Self::Wrap { mechanism, .. }
            | Self::Unwrap { mechanism, .. }
            | Self::Begin { mechanism, .. } => Some(mechanism),
            _ => None,
        }
    }

    /// The PKCS#11 call behind it, for errors and logs.
    pub const fn call(&self) -> &'static str {
        match self {
            Self::Use { verb, .. } => match verb {
                Verb::Sign => "C_Sign",
                Verb::SignRecover => "C_SignRecover",
                Verb::Encrypt => "C_Encrypt",
                Verb::Decrypt => "C_Decrypt",
                Verb::Verify => "C_Verify",
            },
            Self::Random { .. } => "C_GenerateRandom",
            Self::Generate { .. } => "C_GenerateKey",
            Self::GeneratePair { .. } => "C_GenerateKeyPair",
            Self::Derive { .. } => "C_DeriveKey",
            Self::Wrap { .. } => "C_WrapKey",
            Self::Unwrap { .. } => "C_UnwrapKey",
            Self::Create { .. } => "C_CreateObject",
            Self::Copy { .. } => "C_CopyObject",
            Self::Destroy { .. } => "C_DestroyObject",
            Self::SetAttributes { .. } => "C_SetAttributeValue",
            Self::Read { .. } => "C_GetAttributeValue",
            Self::Begin { verb, .. } => verb.begins(),
        }
    }
}

/// A new object as a token answers it: where it is, and what can be read of it.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct Made {
    /// Set for a session object; a token object is found by `object.id`.
    #[n(0)]
    pub session: Option<SessionObject>,
    /// What it is, and what can be read of it.
    #[n(1)]
    pub object: Object,
}

/// The answer to an operation.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(context_bound = "Borrow")]
pub enum Outcome {
    /// Done; there is nothing to say.
    #[n(0)]
    Done,
    /// A signature, a text, random bytes, a wrapped key.
    #[n(1)]
    Bytes(#[n(0)] Blob),
    /// New or read objects, the public key of a pair first.
    #[n(2)]
    Objects(#[n(0)] Vec<Made>),
}

impl Outcome {
    /// The bytes, for an operation that answers bytes.
    pub fn into_bytes(self) -> crate::Result<bytes::Bytes> {
        match self {
            Self::Bytes(Blob(bytes)) => Ok(bytes),
            other => Err(crate::Error::protocol(format!(
                "expected bytes, got {other:?}"
            ))),
        }
    }

    /// The objects, for an operation that makes or reads some.
    pub fn into_objects(self) -> crate::Result<Vec<Made>> {
        match self {
            Self::Objects(made) => Ok(made),
            other => Err(crate::Error::protocol(format!(
                "expected objects, got {other:?}"
            ))),
        }
    }
}
