//! What clients ask for.

use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, Mechanism, ObjectId, Operation};

/// Attributes by which clients call an object.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub label: Vec<u8>,
    /// CKA_ID.
    pub id: Vec<u8>,
}

/// What an object is named by, apart from [`Names`].
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Nature {
    Data { value: Vec<u8> },
    SecretKey { key_type: u64, check_value: Vec<u8> },
    Half,
}

/// A change of token objects.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Create {
        value: Vec<u8>,
        names: Names,
    },
    Generate {
        mechanism: u64,
        names: Names,
    },
    GeneratePair {
        names: Names,
    },
    Copy {
        model: ObjectId,
        copy: ObjectId,
        names: Names,
    },
    Set {
        object: ObjectId,
        becomes: ObjectId,
        names: Names,
    },
    Destroy {
        object: ObjectId,
    },
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let label = String::from_utf8_lossy(&self.label);
        write!(f, "{label:?}, CKA_ID {}", hex::encode(&self.id))
    }
}

impl Names {
    pub fn new(label: &str, id: &[u8]) -> Self {
        Self {
            label: label.as_bytes().to_vec(),
            id: id.to_vec(),
        }
    }

    pub fn of(attributes: &Attributes) -> Self {
        let bytes = |kind| attributes.get(kind).unwrap_or_default().to_vec();
        Self {
            label: bytes(CKA_LABEL),
            id: bytes(CKA_ID),
        }
    }

    fn template(&self) -> Attributes {
        let template = Attributes::default().with(CKA_LABEL, self.label.clone());
        if self.id.is_empty() {
            return template;
        }
        template.with(CKA_ID, self.id.clone())
    }
}

impl Nature {
    pub fn of(class: Class, attributes: &Attributes) -> Self {
        let bytes = |kind| attributes.get(kind).unwrap_or_default().to_vec();
        match class {
            Class::DATA => Self::Data {
                value: bytes(CKA_VALUE),
            },
            Class::SECRET_KEY => Self::SecretKey {
                key_type: attributes.number(CKA_KEY_TYPE).unwrap_or_default(),
                check_value: bytes(CKA_CHECK_VALUE),
            },
            _ => Self::Half,
        }
    }

    /// What an object is named by these; `now` is its present name.
    pub fn id(&self, names: &Names, now: ObjectId) -> ObjectId {
        match self {
            Self::Data { value } => ObjectId::of_data(b"", &names.label, value),
            Self::SecretKey {
                key_type,
                check_value,
            } => ObjectId::of_secret_key(*key_type, &names.id, check_value),
            Self::Half => now,
        }
    }
}

impl Change {
    pub fn operation(&self) -> Operation {
        let named = |names: &Names| names.template().with_flag(CKA_TOKEN, true);
        match self {
            Self::Create { value, names } => Operation::Create {
                template: named(names)
                    .with_number(CKA_CLASS, CKO_DATA)
                    .with(CKA_VALUE, value.clone()),
                near: None,
            },
            Self::Generate { mechanism, names } => Operation::Generate {
                mechanism: Mechanism::plain(*mechanism),
                template: named(names)
                    .with_number(CKA_VALUE_LEN, 32)
                    .with_flag(CKA_ENCRYPT, *mechanism == CKM_AES_KEY_GEN)
                    .with_flag(CKA_SIGN, *mechanism != CKM_AES_KEY_GEN),
            },
            Self::GeneratePair { names } => Operation::GeneratePair {
                mechanism: Mechanism::plain(CKM_RSA_PKCS_KEY_PAIR_GEN),
                public: named(names)
                    .with_number(CKA_MODULUS_BITS, 512)
                    .with_flag(CKA_VERIFY, true),
                private: named(names).with_flag(CKA_SIGN, true),
            },
            Self::Copy { model, names, .. } => Operation::Copy {
                object: (*model).into(),
                template: names.template(),
            },
            Self::Set { object, names, .. } => Operation::SetAttributes {
                object: (*object).into(),
                template: match object.class {
                    Class::DATA => names.template(),
                    // Also an empty one, in place of another.
                    _ => names.template().with(CKA_ID, names.id.clone()),
                },
            },
            Self::Destroy { object } => Operation::Destroy {
                object: (*object).into(),
            },
        }
    }

    /// True if it makes keys, whose names nobody knows before.
    pub fn generates(&self) -> Option<&Names> {
        match self {
            Self::Generate { names, .. } | Self::GeneratePair { names } => Some(names),
            _ => None,
        }
    }
}
