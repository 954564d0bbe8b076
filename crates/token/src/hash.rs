//! Hash functions: their mechanisms, masks, lengths and DigestInfo, one table.

#[allow(
    clippy::wildcard_imports,
    reason = "a table of the standard's constants"
)]
use crate::ck::*;

/// A hash function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hash {
    /// MD5: for what is old.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
    /// SHA3-224.
    Sha3_224,
    /// SHA3-256.
    Sha3_256,
    /// SHA3-384.
    Sha3_384,
    /// SHA3-512.
    Sha3_512,
}

impl Hash {
    /// The hash of a `CKM_*` digest mechanism.
    pub fn of(mechanism: u64) -> Option<Self> {
        HASHES
            .iter()
            .find(|row| row.1 == mechanism)
            .map(|row| row.0)
    }

    /// The hash of a `CKG_MGF1_*` (0 is none of them).
    pub fn of_mgf(mgf: u64) -> Option<Self> {
        let of_row = |row: &&HashRow| row.2 == mgf && mgf != 0;
        HASHES.iter().find(of_row).map(|row| row.0)
    }

    /// Its `CKM_*`.
    pub fn mechanism(self) -> u64 {
        self.row().1
    }

    /// Its `CKG_MGF1_*`; 0 where the standard has none.
    pub fn mgf(self) -> u64 {
        self.row().2
    }

    /// Length of the digest in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a digest is never empty")]
    pub fn len(self) -> usize {
        self.row().3
    }

    /// The DER that stands before the digest in a DigestInfo (RFC 8017, section 9.2, note 1).
    pub fn digest_info_prefix(self) -> &'static [u8] {
        self.row().4
    }

    fn row(self) -> &'static HashRow {
        // The table is in the order of the enum, which a test checks.
        &HASHES[self as usize]
    }
}

type HashRow = (Hash, u64, u64, usize, &'static [u8]);

macro_rules! nist_prefix {
    ($last:literal, $len:literal) => {
        &[
            0x30,
            0x11 + $len,
            0x30,
            0x0d,
            0x06,
            0x09,
            0x60,
            0x86,
            0x48,
            0x01,
            0x65,
            0x03,
            0x04,
            0x02,
            $last,
            0x05,
            0x00,
            0x04,
            $len,
        ]
    };
}

#[rustfmt::skip]
static HASHES: [HashRow; 10] = [
    (Hash::Md5, CKM_MD5, 0, 16, &[0x30, 0x20, 0x30, 0x0c, 0x06, 0x08, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02, 0x05, 0x05, 0x00, 0x04, 0x10]),
    (Hash::Sha1, CKM_SHA_1, CKG_MGF1_SHA1, 20, &[0x30, 0x21, 0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00, 0x04, 0x14]),
    (Hash::Sha224, CKM_SHA224, CKG_MGF1_SHA224, 28, nist_prefix!(4, 28)),
    (Hash::Sha256, CKM_SHA256, CKG_MGF1_SHA256, 32, nist_prefix!(1, 32)),
    (Hash::Sha384, CKM_SHA384, CKG_MGF1_SHA384, 48, nist_prefix!(2, 48)),
    (Hash::Sha512, CKM_SHA512, CKG_MGF1_SHA512, 64, nist_prefix!(3, 64)),
    (Hash::Sha3_224, CKM_SHA3_224, CKG_MGF1_SHA3_224, 28, nist_prefix!(7, 28)),
    (Hash::Sha3_256, CKM_SHA3_256, CKG_MGF1_SHA3_256, 32, nist_prefix!(8, 32)),
    (Hash::Sha3_384, CKM_SHA3_384, CKG_MGF1_SHA3_384, 48, nist_prefix!(9, 48)),
    (Hash::Sha3_512, CKM_SHA3_512, CKG_MGF1_SHA3_512, 64, nist_prefix!(10, 64)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_stand_in_the_order_of_their_enum() {
        for row in &HASHES {
            assert_eq!(row.0.mechanism(), row.1);
            assert_eq!(*row.4.last().unwrap() as usize, row.3, "{:?}", row.0);
            assert_eq!(row.4[1] as usize, row.4.len() - 2 + row.3, "{:?}", row.0);
        }
    }
}
