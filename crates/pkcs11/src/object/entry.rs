//! One object: where it lives, what can be read of it, and what a key may be used for.

use std::borrow::Cow;
use std::sync::OnceLock;

use hsmux_software::PublicKey;
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, KeyKind, ObjectId, ObjectRef, SessionObject};

use super::template;
use crate::rv::{Result, Rv};

/// The location of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectLocation {
    /// On the members that hold it.
    Token(ObjectId),
    /// With the token's private key that it is a session's copy of: to use it is to use that key, on any member.
    Copy(ObjectId),
    /// On one member, as a session object: a secret or private key.
    Member(SessionObject),
    /// In this process: a session object without a secret.
    Here,
}

/// An object with its handle. It does not change: a change makes another entry.
pub struct ObjectEntry {
    /// The handle that the application has.
    pub handle: u64,
    /// The location.
    pub location: ObjectLocation,
    /// The session that made it, and with which it goes; 0 for a token object.
    pub session: u64,
    /// The readable attributes.
    pub attributes: Attributes,
    /// CKA_CLASS.
    pub class: Class,
    /// The family of a key; `None` for what is no key.
    pub kind: KeyKind,
    /// CKA_ALWAYS_AUTHENTICATE: each use asks for the PIN.
    pub asks_each_time: bool,
    size: Option<usize>,
    public: OnceLock<Option<PublicKey>>,
}

/// The answer of C_GetAttributeValue for one attribute.
pub enum AttributeValue<'a> {
    /// Its value.
    Known(Cow<'a, [u8]>),
    /// It is there, and the token keeps it to itself.
    Sensitive,
    /// The object has no such attribute.
    Unknown,
}

impl ObjectEntry {
    /// An object as it was read or made.
    pub fn new(
        handle: u64,
        location: ObjectLocation,
        session: u64,
        attributes: Attributes,
    ) -> Self {
        let class = Class(attributes.number(CKA_CLASS).unwrap_or(CKO_DATA));
        let kind = match class {
            Class::PUBLIC_KEY | Class::PRIVATE_KEY | Class::SECRET_KEY => attributes
                .number(CKA_KEY_TYPE)
                .map_or(KeyKind::None, KeyKind::of),
            _ => KeyKind::None,
        };
        Self {
            handle,
            location,
            session,
            class,
            kind,
            asks_each_time: attributes.flag(CKA_ALWAYS_AUTHENTICATE) == Some(true),
            size: size(kind, &attributes),
            attributes,
            public: OnceLock::new(),
        }
    }

    /// The name that the backend knows it by; what lives here has none.
    pub fn reference(&self) -> Option<ObjectRef> {
        match self.location {
            ObjectLocation::Token(id) | ObjectLocation::Copy(id) => Some(ObjectRef::Token(id)),
            ObjectLocation::Member(object) => Some(ObjectRef::Session(object)),
            ObjectLocation::Here => None,
        }
    }

    /// The same for what changes it or takes it away: of a copy that is done here, and never to the original.
    pub fn own_reference(&self) -> Option<ObjectRef> {
        match self.location {
            ObjectLocation::Copy(_) => None,
            _ => self.reference(),
        }
    }

    /// CKA_TOKEN.
    pub fn is_token(&self) -> bool {
        matches!(self.location, ObjectLocation::Token(_))
    }

    /// CKA_PRIVATE: only for who has logged in.
    pub fn is_private(&self) -> bool {
        template::is_private(self.class, &self.attributes)
    }

    /// A flag such as CKA_SIGN or CKA_DESTROYABLE that only forbids where it is false.
    pub fn permits(&self, flag: CK_ATTRIBUTE_TYPE) -> bool {
        self.attributes.flag(flag) != Some(false)
    }

    /// True if CKA_ALLOWED_MECHANISMS has it, or is empty.
    pub fn allows(&self, mechanism: CK_MECHANISM_TYPE) -> bool {
        match self.attributes.get(CKA_ALLOWED_MECHANISMS) {
            None | Some([]) => true,
            Some(list) => list
                .chunks_exact(8)
                .any(|one| one == mechanism.to_le_bytes()),
        }
    }

    /// The public key, for operations in this process.
    pub fn public(&self) -> Result<&PublicKey> {
        self.public
            .get_or_init(|| match PublicKey::from_attributes(&self.attributes) {
                Ok(key) => Some(key),
                Err(error) => {
                    crate::debug::say(&error);
                    None
                }
            })
            .as_ref()
            .ok_or(Rv(CKR_KEY_TYPE_INCONSISTENT))
    }

    /// True if this process can compute with the public key; all others need a member.
    pub fn is_checked_here(&self) -> bool {
        let key = self.public();
        key.is_ok_and(|key| key.unchecked_curve().is_none())
    }

    /// Bytes of an RSA modulus, or of both halves of a signature of DSA or an elliptic curve.
    pub fn signature_len(&self) -> Option<usize> {
        self.size
    }

    /// The answer of C_GetAttributeValue, as far as this process knows it.
    pub fn value(&self, kind: CK_ATTRIBUTE_TYPE) -> AttributeValue<'_> {
        if let Some(value) = self.attributes.get(kind) {
            return AttributeValue::Known(Cow::Borrowed(value));
        }
        let is_secret = matches!(self.class, Class::PRIVATE_KEY | Class::SECRET_KEY);
        match kind {
            CKA_VALUE | CKA_PRIVATE_EXPONENT | CKA_PRIME_1 | CKA_PRIME_2 | CKA_EXPONENT_1
            | CKA_EXPONENT_2 | CKA_COEFFICIENT
                if is_secret =>
            {
                AttributeValue::Sensitive
            }
            CKA_TOKEN => AttributeValue::flag(self.is_token()),
            CKA_PRIVATE => AttributeValue::flag(self.is_private()),
            CKA_MODIFIABLE | CKA_COPYABLE | CKA_DESTROYABLE => AttributeValue::flag(true),
            CKA_LABEL => AttributeValue::Known(Cow::Borrowed(&[])),
            _ => AttributeValue::Unknown,
        }
    }

    /// True if the token reveals CKA_VALUE and the like, since the template asked for that.
    pub fn is_readable(&self) -> bool {
        self.attributes.flag(CKA_SENSITIVE) == Some(false)
            && self.attributes.flag(CKA_EXTRACTABLE) == Some(true)
    }
}

impl AttributeValue<'_> {
    fn flag(value: bool) -> Self {
        Self::Known(Cow::Borrowed(if value { &[CK_TRUE] } else { &[CK_FALSE] }))
    }
}

fn size(kind: KeyKind, attributes: &Attributes) -> Option<usize> {
    match kind {
        KeyKind::Rsa => {
            let modulus = attributes.get(CKA_MODULUS)?;
            let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
            Some(modulus.len() - zeros)
        }
        KeyKind::Dsa => Some(2 * attributes.get(CKA_SUBPRIME)?.len()),
        KeyKind::Ec | KeyKind::Edwards => Some(2 * order_len(attributes.get(CKA_EC_PARAMS)?)?),
        _ => None,
    }
}

/// Bytes of a named curve's order, by its CKA_EC_PARAMS: the DER of its object identifier, or its name.
fn order_len(params: &[u8]) -> Option<usize> {
    let found = CURVES.iter().find(|(oid, _)| params == *oid)?;
    Some(found.1)
}

#[rustfmt::skip]
const CURVES: &[(&[u8], usize)] = &[
    // secp192r1, secp224r1, secp256r1, secp384r1, secp521r1, secp256k1
    (&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 1], 24),
    (&[6, 5, 0x2b, 0x81, 4, 0, 33], 28),
    (&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7], 32),
    (&[6, 5, 0x2b, 0x81, 4, 0, 34], 48),
    (&[6, 5, 0x2b, 0x81, 4, 0, 35], 66),
    (&[6, 5, 0x2b, 0x81, 4, 0, 10], 32),
    // brainpoolP192r1, P224r1, P256r1, P320r1, P384r1, P512r1
    (&[6, 9, 0x2b, 0x24, 3, 3, 2, 8, 1, 1, 3], 24),
    (&[6, 9, 0x2b, 0x24, 3, 3, 2, 8, 1, 1, 5], 28),
    (&[6, 9, 0x2b, 0x24, 3, 3, 2, 8, 1, 1, 7], 32),
    (&[6, 9, 0x2b, 0x24, 3, 3, 2, 8, 1, 1, 9], 40),
    (&[6, 9, 0x2b, 0x24, 3, 3, 2, 8, 1, 1, 11], 48),
    (&[6, 9, 0x2b, 0x24, 3, 3, 2, 8, 1, 1, 13], 64),
    // Ed25519 and Ed448: identifier (RFC 8410), and name (PKCS#11 3.0, section 2.3.5)
    (&[6, 3, 0x2b, 0x65, 0x70], 32),
    (&[6, 3, 0x2b, 0x65, 0x71], 57),
    (b"\x13\x0cedwards25519", 32),
    (b"\x13\x0aedwards448", 57),
];
