//! Maps that are looked into for every request.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are names of objects or numbers that nobody outside chooses: no hash of a key is
/// computed that would have to hold against somebody who does.
pub type NameMap<K, V> = HashMap<K, V, BuildHasherDefault<NameHasher>>;

/// Names are hashes already: eight bytes of one are as good as any hash of it.
#[derive(Clone, Copy, Default)]
pub struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 ^= u64::from_le_bytes(*first);
        }
    }

    /// A class, a handle, a mechanism. The factor is 2^64 divided by the golden ratio, which brings
    /// numbers in a row far apart: the map looks at the upper and the lower bits.
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// The length of a name is always the same.
    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;
    use crate::{Class, ObjectId};

    fn hash(key: impl std::hash::Hash) -> u64 {
        BuildHasherDefault::<NameHasher>::default().hash_one(key)
    }

    #[test]
    fn numbers_in_a_row_and_the_halves_of_a_pair_are_kept_apart() {
        let ends = |hash: u64| (hash >> 57, hash & 0x7f);
        let numbers: HashSet<_> = (1..=64_u64).map(|number| ends(hash(number))).collect();
        assert_eq!(numbers.len(), 64);
        let pair = ObjectId::of_public_key(Class::PUBLIC_KEY, b"a key");
        assert_ne!(hash(pair), hash(pair.with_class(Class::PRIVATE_KEY)));
    }
}
