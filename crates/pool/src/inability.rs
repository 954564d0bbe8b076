//! A pool that is a member of another pool tells it what its own members cannot do with a key. The other pool sees a
//! single token, which offers what any of these members offers.

use hsmux_token::{Attributes, Class, Object, ck};

use crate::catalogue::{Catalogue, Entry};

/// An attribute of hsmux's own, of keys: the mechanisms that no member can use the key with, each a number of 64 bits,
/// least significant byte first.
const CKA_UNABLE: u64 = ck::CKA_VENDOR_DEFINED | 0x6873_6d01;

/// In place of a mechanism: no member serves the key now.
const SERVED_NOWHERE: u64 = u64::MAX;

impl Catalogue {
    /// The object, with what its members cannot do, if it is a key.
    pub fn with_inability(&self, entry: &Entry) -> Object {
        let mut object = Object::clone(&entry.object);
        let id = object.id;
        if !matches!(id.class, Class::PRIVATE_KEY | Class::SECRET_KEY) {
            return object;
        }
        let offered = self.info.mechanisms.iter().map(|mechanism| mechanism.kind);
        let unable = offered.filter(|mechanism| !self.can(&id, *mechanism));
        let nowhere = entry.members().is_empty().then_some(SERVED_NOWHERE);
        let value: Vec<u8> = unable.chain(nowhere).flat_map(u64::to_le_bytes).collect();
        if !value.is_empty() {
            object.attributes.set(CKA_UNABLE, value);
        }
        object
    }
}

impl Entry {
    /// True if a member serves it now, in this pool or in the pool that is its member.
    pub fn is_served(&self) -> bool {
        !self.members().is_empty() && !says(&self.object.attributes, SERVED_NOWHERE)
    }

    /// True if a member that is a pool says that it cannot use the key with this mechanism.
    pub(crate) fn is_unable(&self, mechanism: u64) -> bool {
        says(&self.object.attributes, mechanism)
    }
}

fn says(attributes: &Attributes, wanted: u64) -> bool {
    let value = attributes.get(CKA_UNABLE).unwrap_or_default();
    value
        .chunks_exact(8)
        .any(|number| number == wanted.to_le_bytes())
}
