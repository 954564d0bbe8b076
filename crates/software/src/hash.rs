//! Digests in memory.

use digest::Digest;
use hsmux_token::Hash;

/// A running digest, of any hash of the mechanism table.
#[derive(Clone)]
pub struct Hasher(HasherState);

/// The digest of data that is all there.
pub fn digest(hash: Hash, data: &[u8]) -> Vec<u8> {
    let mut hasher = Hasher::new(hash);
    hasher.update(data);
    hasher.finish()
}

macro_rules! hashes {
    ($($name:ident => $digest:ty,)*) => {
        // Boxed: a Keccak state is 30 times an MD5 state, and a hasher lives in a session.
        #[derive(Clone)]
        enum HasherState {
            $($name(Box<$digest>),)*
        }

        impl Hasher {
            /// Starts a digest.
            pub fn new(hash: Hash) -> Self {
                Self(match hash {
                    $(Hash::$name => HasherState::$name(Box::default()),)*
                })
            }

            /// Takes the next part of the data.
            pub fn update(&mut self, part: &[u8]) {
                match &mut self.0 {
                    $(HasherState::$name(state) => state.update(part),)*
                }
            }

            /// The digest of all parts.
            pub fn finish(self) -> Vec<u8> {
                match self.0 {
                    $(HasherState::$name(state) => state.finalize().to_vec(),)*
                }
            }

            /// Which hash it is.
            pub fn hash(&self) -> Hash {
                match self.0 {
                    $(HasherState::$name(_) => Hash::$name,)*
                }
            }
        }
    };
}

hashes! {
    Md5 => md5::Md5,
    Sha1 => sha1::Sha1,
    Sha224 => sha2::Sha224,
    Sha256 => sha2::Sha256,
    Sha384 => sha2::Sha384,
    Sha512 => sha2::Sha512,
    Sha3_224 => sha3::Sha3_224,
    Sha3_256 => sha3::Sha3_256,
    Sha3_384 => sha3::Sha3_384,
    Sha3_512 => sha3::Sha3_512,
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hasher({:?})", self.hash())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests of "abc": RFC 1321, FIPS 180-4 and FIPS 202 examples.
    const ABC: [(Hash, &str); 10] = [
        (Hash::Md5, "900150983cd24fb0d6963f7d28e17f72"),
        (Hash::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (
            Hash::Sha224,
            "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
        ),
        (
            Hash::Sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            Hash::Sha384,
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
        ),
        (
            Hash::Sha512,
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        (
            Hash::Sha3_224,
            "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf",
        ),
        (
            Hash::Sha3_256,
            "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
        ),
        (
            Hash::Sha3_384,
            "ec01498288516fc926459f58e2c6ad8df9b473cb0fc08c2596da7cf0e49be4b298d88cea927ac7f539f1edf228376d25",
        ),
        (
            Hash::Sha3_512,
            "b751850b1a57168a5693cd924b6b096e08f621827444f70d884f5d0240d2712e10e116e9192af3c91a7ec57647e3934057340b4cf408d5a56592f8274eec53f0",
        ),
    ];

    #[test]
    fn every_hash_in_parts_gives_the_published_digest() {
        for (hash, expected) in ABC {
            let mut hasher = Hasher::new(hash);
            hasher.update(b"a");
            let mut copy = hasher.clone();
            hasher.update(b"something else");
            copy.update(b"bc");
            assert_eq!(hex::encode(copy.finish()), expected, "{hash:?}");
            assert_eq!(digest(hash, b"abc").len(), hash.len());
        }
    }
}
