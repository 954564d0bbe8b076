//! Naming the objects of a token by what they are.

use std::collections::HashMap;

use hsmux_token::{Attributes, Class, KeyKind, Object, ObjectId, ck};

use crate::{PublicKey, unchecked_kind};

/// Gives every object of one token its [`ObjectId`], in the order given.
///
/// Private keys whose public half is known get CKA_PUBLIC_KEY_INFO: RSA keys from their own modulus
/// and exponent, others from the public key or certificate with the same CKA_ID. `serial` tells
/// the token from others (`TokenInfo::identity`); it names what only this token can name.
pub fn identify(serial: &str, objects: Vec<Attributes>) -> Vec<Object> {
    let halves = PublicHalves::of(&objects);
    objects
        .into_iter()
        .map(|mut attributes| {
            let key = public_key(&attributes, &halves);
            if let (Some(key), Class::PRIVATE_KEY) = (&key, class(&attributes)) {
                attributes.set(ck::CKA_PUBLIC_KEY_INFO, key.spki().to_vec());
            }
            let id = name(&attributes, key.as_ref())
                .unwrap_or_else(|| unidentified(serial, &attributes));
            Object { id, attributes }
        })
        .collect()
}

/// Public keys by CKA_ID: there may be thousands.
struct PublicHalves(HashMap<Vec<u8>, Vec<PublicHalf>>);

impl PublicHalves {
    fn of(objects: &[Attributes]) -> Self {
        let mut halves: HashMap<_, Vec<_>> = HashMap::new();
        for half in objects.iter().filter_map(PublicHalf::of) {
            halves.entry(half.id.clone()).or_default().push(half);
        }
        Self(halves)
    }

    fn with(&self, id: &[u8]) -> &[PublicHalf] {
        self.0.get(id).map_or(&[], Vec::as_slice)
    }
}

/// A public key that the token shows: the public half of private keys with the same CKA_ID.
struct PublicHalf {
    id: Vec<u8>,
    label: Vec<u8>,
    class: Class,
    key: PublicKey,
}

impl PublicHalf {
    fn of(attributes: &Attributes) -> Option<Self> {
        let class = class(attributes);
        let shows_key = [Class::PUBLIC_KEY, Class::CERTIFICATE].contains(&class);
        let key = shows_key.then(|| PublicKey::from_attributes(attributes).ok())??;
        Some(Self {
            id: bytes(attributes, ck::CKA_ID).to_vec(),
            label: bytes(attributes, ck::CKA_LABEL).to_vec(),
            class,
            key,
        })
    }
}

fn public_key(attributes: &Attributes, halves: &PublicHalves) -> Option<PublicKey> {
    match class(attributes) {
        Class::PUBLIC_KEY => PublicKey::from_attributes(attributes).ok(),
        Class::PRIVATE_KEY => {
            let own = PublicKey::from_attributes(attributes).ok();
            own.or_else(|| other_half(attributes, halves))
        }
        _ => None,
    }
}

/// The public half of a private key that does not tell it.
///
/// CKA_ID is not unique on every token: public keys go before certificates, and where several
/// different keys remain, those with the same label. A guess would only fail its proof later.
fn other_half(private: &Attributes, halves: &PublicHalves) -> Option<PublicKey> {
    let id = private.get(ck::CKA_ID).filter(|id| !id.is_empty())?;
    let kind = KeyKind::of(private.number(ck::CKA_KEY_TYPE)?);
    let label = bytes(private, ck::CKA_LABEL);
    let same_id = halves.with(id).iter();
    let same_id: Vec<&PublicHalf> = same_id.filter(|half| half.key.kind() == kind).collect();
    let only = |wanted: &dyn Fn(&PublicHalf) -> bool| {
        let mut keys = same_id
            .iter()
            .filter(|half| wanted(half))
            .map(|half| &half.key);
        let first = keys.next()?;
        keys.all(|key| key == first).then(|| first.clone())
    };
    only(&|half| half.class == Class::PUBLIC_KEY)
        .or_else(|| only(&|_| true))
        .or_else(|| only(&|half| half.label == label))
}

/// The name of an object that all its copies share.
fn name(attributes: &Attributes, key: Option<&PublicKey>) -> Option<ObjectId> {
    let some = |kind| attributes.get(kind).filter(|value| !value.is_empty());
    match class(attributes) {
        class @ (Class::PUBLIC_KEY | Class::PRIVATE_KEY) => {
            let checked = key.filter(|key| key.unchecked_curve().is_none())?;
            Some(ObjectId::of_public_key(class, checked.spki()))
        }
        Class::SECRET_KEY => Some(ObjectId::of_secret_key(
            attributes.number(ck::CKA_KEY_TYPE)?,
            bytes(attributes, ck::CKA_ID),
            some(ck::CKA_CHECK_VALUE)?,
        )),
        Class::CERTIFICATE => Some(ObjectId::of_certificate(some(ck::CKA_VALUE)?)),
        Class::DATA => Some(ObjectId::of_data(
            bytes(attributes, ck::CKA_APPLICATION),
            bytes(attributes, ck::CKA_LABEL),
            attributes.get(ck::CKA_VALUE)?,
        )),
        _ => None,
    }
}

/// True for a private key that is named by its public half, which is not known now: it keeps the name that it is known by.
pub fn lacks_public_half(serial: &str, object: &Object) -> bool {
    object.id.class == Class::PRIVATE_KEY
        && unchecked_kind(&object.attributes).is_none()
        && object.id == unidentified(serial, &object.attributes)
}

/// The name of an object that only its own token can name.
pub fn unidentified(serial: &str, attributes: &Attributes) -> ObjectId {
    let class = class(attributes);
    let (id, label) = (
        bytes(attributes, ck::CKA_ID),
        bytes(attributes, ck::CKA_LABEL),
    );
    let key_type = attributes.number(ck::CKA_KEY_TYPE);
    match key_type.filter(|_| unchecked_kind(attributes).is_some()) {
        Some(key_type) => {
            let values = public_values(class).map(|kind| bytes(attributes, kind));
            ObjectId::of_uncheckable(class, serial, key_type, (id, label), &values)
        }
        None => ObjectId::of_unidentified(class, serial, id, label),
    }
}

/// The attributes that tell keys of one type apart. The value of a private key is its secret.
fn public_values(class: Class) -> [u64; 7] {
    let value = match class {
        Class::PUBLIC_KEY => ck::CKA_VALUE,
        _ => ck::CKA_PUBLIC_KEY_INFO,
    };
    [
        ck::CKA_PARAMETER_SET,
        ck::CKA_EC_PARAMS,
        ck::CKA_EC_POINT,
        ck::CKA_PRIME,
        ck::CKA_SUBPRIME,
        ck::CKA_BASE,
        value,
    ]
}

fn class(attributes: &Attributes) -> Class {
    Class(attributes.number(ck::CKA_CLASS).unwrap_or(u64::MAX))
}

fn bytes(attributes: &Attributes, kind: u64) -> &[u8] {
    attributes.get(kind).unwrap_or_default()
}
