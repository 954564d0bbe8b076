//! The mark in an object's CKA_ID that names its managed key. Names survive a loss of the store by it.

use hsmux_pool::{BROKER_MARK, BROKER_ROLE};
use hsmux_token::{Error, Kind, Object, Result, ck};

use super::{KeyName, KeyType};

/// The content of the CKA_ID of a managed key's object; its CKA_LABEL is the key's name.
///
/// `hsmb`, 1, the type's number, the role, the version in 4 bytes, 8 random bytes: a name that is used again after a
/// deletion never gives the same object again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyMark {
    /// The key's type.
    pub kind: KeyType,
    /// The role of the object in its version.
    pub role: Role,
    /// From 1.
    pub version: u32,
}

/// The role of an object in its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The key that the type is named after.
    Main = 0,
    /// The key that authenticates the output of the first.
    Mac = 1,
}

const LENGTH: usize = BROKER_MARK.len() + 2 + 4 + 8;

impl KeyMark {
    /// A new CKA_ID.
    pub fn to_id(self) -> Result<Vec<u8>> {
        let mut id = BROKER_MARK.to_vec();
        id.extend([self.kind.code(), self.role as u8]);
        id.extend(self.version.to_be_bytes());
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
        id.extend(random);
        Ok(id)
    }

    /// The managed key of an object, if it has one.
    pub fn of(object: &Object) -> Option<(KeyName, Self)> {
        let id = object.attributes.get(ck::CKA_ID)?;
        let rest = id
            .strip_prefix(BROKER_MARK)
            .filter(|_| id.len() == LENGTH)?;
        let role = match id[BROKER_ROLE] {
            0 => Role::Main,
            1 => Role::Mac,
            _ => return None,
        };
        let version = u32::from_be_bytes(rest[2..6].try_into().ok()?);
        let kind = KeyType::of_code(rest[0])?;
        let name = object.attributes.text(ck::CKA_LABEL)?.parse().ok()?;
        (version > 0).then_some((
            name,
            Self {
                kind,
                role,
                version,
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsmux_token::{Attributes, ObjectId};

    fn object(id: &[u8]) -> Object {
        Object {
            id: ObjectId::of_data(b"", b"", id),
            attributes: Attributes::default()
                .with(ck::CKA_LABEL, b"orders".to_vec())
                .with(ck::CKA_ID, id.to_vec()),
        }
    }

    #[test]
    fn an_object_says_which_key_it_is_of() {
        let mark = KeyMark {
            kind: "aes256-cbc".parse().unwrap(),
            role: Role::Mac,
            version: 7,
        };
        let id = mark.to_id().unwrap();
        assert_ne!(id, mark.to_id().unwrap());
        let (name, read) = KeyMark::of(&object(&id)).unwrap();
        assert_eq!((name.as_str(), read), ("orders", mark));
        for end in 0..id.len() {
            assert_eq!(KeyMark::of(&object(&id[..end])), None);
        }
    }
}
