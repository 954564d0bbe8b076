//! Names of objects: a key is named by what it is, never by its label or its handle.

use crate::{Attributes, Borrow, ck};
use minicbor::{Decode, Encode};
use sha2::{Digest, Sha256};

/// The class of an object, `CKO_*`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Encode, Decode)]
#[cbor(transparent)]
pub struct Class(#[n(0)] pub u64);

impl Class {
    /// `CKO_DATA`.
    pub const DATA: Self = Self(ck::CKO_DATA);
    /// `CKO_CERTIFICATE`.
    pub const CERTIFICATE: Self = Self(ck::CKO_CERTIFICATE);
    /// `CKO_PUBLIC_KEY`.
    pub const PUBLIC_KEY: Self = Self(ck::CKO_PUBLIC_KEY);
    /// `CKO_PRIVATE_KEY`.
    pub const PRIVATE_KEY: Self = Self(ck::CKO_PRIVATE_KEY);
    /// `CKO_SECRET_KEY`.
    pub const SECRET_KEY: Self = Self(ck::CKO_SECRET_KEY);
    /// `CKO_DOMAIN_PARAMETERS`.
    pub const DOMAIN_PARAMETERS: Self = Self(ck::CKO_DOMAIN_PARAMETERS);

    /// For people: `private key`, `certificate`.
    pub fn name(self) -> &'static str {
        match self {
            Self::DATA => "data",
            Self::CERTIFICATE => "certificate",
            Self::PUBLIC_KEY => "public key",
            Self::PRIVATE_KEY => "private key",
            Self::SECRET_KEY => "secret key",
            Self::DOMAIN_PARAMETERS => "domain parameters",
            _ => "other object",
        }
    }

    /// The attributes that are the key itself (PKCS#11 3.0, sections 4.9 and 4.10): a token shows them
    /// only of keys that are not sensitive, and no catalogue has them.
    pub const fn secrets(self) -> &'static [u64] {
        match self {
            Self::SECRET_KEY => &[ck::CKA_VALUE],
            Self::PRIVATE_KEY => &[
                ck::CKA_PRIVATE_EXPONENT,
                ck::CKA_PRIME_1,
                ck::CKA_PRIME_2,
                ck::CKA_EXPONENT_1,
                ck::CKA_EXPONENT_2,
                ck::CKA_COEFFICIENT,
                ck::CKA_VALUE,
            ],
            _ => &[],
        }
    }
}

/// What an object is, the same on every member that holds it.
///
/// - a private or public key: SHA-256 of its DER SubjectPublicKeyInfo, so that both halves of a pair
///   have one `name` and differ in `class`;
/// - a secret key: SHA-256 of its key type, CKA_ID and check value;
/// - a certificate: SHA-256 of its DER value;
/// - a data object: SHA-256 of application, label and value;
/// - a key without a known public key or check value: SHA-256 of the token's serial number and the
///   CKA_ID: such a key is served, but has no second replica;
/// - a key of a pair whose family or curve hsmux cannot compute with: the same with its type and its public values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(array)]
pub struct ObjectId {
    /// `CKO_*`.
    #[n(0)]
    pub class: Class,
    /// See above.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub name: [u8; 32],
}

impl ObjectId {
    /// A private or public key, by the DER of its SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).
    pub fn of_public_key(class: Class, spki: &[u8]) -> Self {
        Self::hashed(class, "spki", &[spki])
    }

    /// A secret key, by type, CKA_ID and CKA_CHECK_VALUE.
    pub fn of_secret_key(key_type: u64, id: &[u8], check_value: &[u8]) -> Self {
        let key_type = key_type.to_be_bytes();
        Self::hashed(Class::SECRET_KEY, "secret", &[&key_type, id, check_value])
    }

    /// A certificate, by its DER value.
    pub fn of_certificate(der: &[u8]) -> Self {
        Self::hashed(Class::CERTIFICATE, "certificate", &[der])
    }

    /// A data object, by CKA_APPLICATION, CKA_LABEL and CKA_VALUE.
    pub fn of_data(application: &[u8], label: &[u8], value: &[u8]) -> Self {
        Self::hashed(Class::DATA, "data", &[application, label, value])
    }

    /// An object that only its own token can name: serial number, CKA_ID and CKA_LABEL.
    pub fn of_unidentified(class: Class, serial: &str, id: &[u8], label: &[u8]) -> Self {
        Self::hashed(class, "unidentified", &[serial.as_bytes(), id, label])
    }

    /// A key of a pair whose family or curve hsmux cannot compute with, so that only its own token can name it: serial
    /// number, key type, CKA_ID and CKA_LABEL, and the values that tell it from others.
    pub fn of_uncheckable(
        class: Class,
        serial: &str,
        key_type: u64,
        (id, label): (&[u8], &[u8]),
        values: &[&[u8]],
    ) -> Self {
        let key_type = key_type.to_be_bytes();
        let own: [&[u8]; 4] = [serial.as_bytes(), &key_type, id, label];
        Self::hashed(class, "uncheckable", &[&own, values].concat())
    }

    /// The same key's other half.
    #[must_use]
    pub fn with_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// Public keys are hashed bare, so that `name` is what other tools print; all else with its domain.
    fn hashed(class: Class, domain: &str, parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        if domain == "spki" {
            hash.update(parts[0]);
        } else {
            hash.update(b"hsmux ");
            hash.update(domain);
            for part in parts {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        Self {
            class,
            name: hash.finalize().into(),
        }
    }
}

/// The first 16 hex digits, which is enough for people.
impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.name[..8]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {self}", self.class.name())
    }
}

/// A session object (CKA_TOKEN = FALSE): it lives in one process and dies with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
#[cbor(array)]
pub struct SessionObject {
    /// The incarnation of the worker that holds it; given by the pool, never used twice. 0 inside that worker.
    #[n(0)]
    pub owner: u64,
    /// The handle within the owner.
    #[n(1)]
    pub handle: u64,
}

/// What an operation works on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
pub enum ObjectRef {
    /// A token object, on any member that holds it.
    #[n(0)]
    Token(#[n(0)] ObjectId),
    /// A session object, on the one member that holds it.
    #[n(1)]
    Session(#[n(0)] SessionObject),
}

impl From<ObjectId> for ObjectRef {
    fn from(id: ObjectId) -> Self {
        Self::Token(id)
    }
}

/// An object with what can be read of it; values that the token keeps to itself are absent.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct Object {
    /// What it is.
    #[n(0)]
    pub id: ObjectId,
    /// What can be read of it.
    #[n(1)]
    pub attributes: Attributes,
}

impl Object {
    /// The object as a catalogue shows it: without [`Class::secrets`].
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        let secrets = self.id.class.secrets();
        self.attributes.0.retain(|a| !secrets.contains(&a.kind));
        self
    }
}

/// All token objects of a token, as they were at one moment.
#[derive(Clone, Default, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct Snapshot {
    /// Grows whenever the objects have changed; says nothing across restarts.
    #[n(0)]
    pub epoch: u64,
    /// In no particular order.
    #[n(1)]
    pub objects: Vec<Object>,
    /// True if the token is a pool, and a member that is away may have more.
    #[cbor(n(2), default)]
    pub is_partial: bool,
}
