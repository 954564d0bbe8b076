//! Names and works inside JSON: hexadecimal, because they are bytes.

use hsmux_token::{Class, ObjectId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// An [`ObjectId`] in JSON: `3:` (the class, `CKO_*`) and the name in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(pub ObjectId);

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!(
            "{}:{}",
            self.0.class.0,
            hex::encode(self.0.name)
        ))
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let parsed = text.split_once(':').and_then(|(class, name)| {
            let mut bytes = [0; 32];
            hex::decode_to_slice(name, &mut bytes).ok()?;
            Some(ObjectId {
                class: Class(class.parse().ok()?),
                name: bytes,
            })
        });
        parsed
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("{text:?} does not name an object")))
    }
}

/// A value of the wire's encoding (CBOR) in JSON, as hexadecimal.
#[derive(Clone, Debug)]
pub struct Cbor<T>(pub T);

impl<T: minicbor::Encode<()>> Serialize for Cbor<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let bytes = minicbor::to_vec(&self.0).map_err(serde::ser::Error::custom)?;
        to.serialize_str(&hex::encode(bytes))
    }
}

impl<'de, T: for<'b> minicbor::Decode<'b, ()>> Deserialize<'de> for Cbor<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = hex::decode(String::deserialize(from)?).map_err(D::Error::custom)?;
        minicbor::decode(&bytes).map(Self).map_err(D::Error::custom)
    }
}
