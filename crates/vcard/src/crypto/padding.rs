//! Encodings for RSA signatures (RFC 8017, section 9).

use hsmux_token::Hash;

/// EMSA-PKCS1-v1_5 without the hash: `00 01 FF.. 00 data`; `None` if `data` are too long.
pub fn pkcs1(data: &[u8], len: usize) -> Option<Vec<u8>> {
    let padding = len.checked_sub(data.len() + 3).filter(|len| *len >= 8)?;
    Some([&[0, 1], &vec![0xFF; padding][..], &[0], data].concat())
}

/// EMSA-PSS of a digest, with a salt as long as the digest; `bits` are those of the modulus.
pub fn pss(hash: Hash, digest: &[u8], bits: usize) -> Option<Vec<u8>> {
    let mut salt = vec![0; hash.len()];
    super::fill(&mut salt);
    pss_with(hash, digest, &salt, bits - 1)
}

fn pss_with(hash: Hash, digest: &[u8], salt: &[u8], bits: usize) -> Option<Vec<u8>> {
    let len = bits.div_ceil(8);
    let zeros = len.checked_sub(hash.len() + salt.len() + 2)?;
    let h = hsmux_software::digest(hash, &[&[0; 8], digest, salt].concat());
    let mut block = [&vec![0; zeros][..], &[1], salt].concat();
    mask(hash, &h, &mut block);
    block[0] &= 0xFF >> (8 * len - bits);
    Some([&block[..], &h, &[0xBC]].concat())
}

/// XORs MGF1 of the seed over the block (RFC 8017, appendix B.2.1).
fn mask(hash: Hash, seed: &[u8], block: &mut [u8]) {
    for (counter, part) in (0u32..).zip(block.chunks_mut(hash.len())) {
        let stream = hsmux_software::digest(hash, &[seed, &counter.to_be_bytes()].concat());
        for (byte, mask) in part.iter_mut().zip(stream) {
            *byte ^= mask;
        }
    }
}

/// The hash and digest of a DigestInfo (RFC 8017, appendix A.2.4), or of a bare digest by its length.
/// For PSS OpenSC sends the first, sc-hsm-embedded the second.
pub fn opened(data: &[u8]) -> Option<(Hash, &[u8])> {
    HASHES.into_iter().find_map(|hash| {
        let bare = data.strip_prefix(hash.digest_info_prefix()).unwrap_or(data);
        (bare.len() == hash.len()).then_some((hash, bare))
    })
}

/// In the order of the card's algorithm numbers: x1 is SHA-1, x5 SHA-512.
pub const HASHES: [Hash; 5] = [
    Hash::Sha1,
    Hash::Sha224,
    Hash::Sha256,
    Hash::Sha384,
    Hash::Sha512,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_pkcs1_needs_room_for_eight_bytes() {
        assert_eq!(
            pkcs1(&[7; 3], 14).unwrap(),
            [&[0, 1][..], &[0xFF; 8], &[0, 7, 7, 7]].concat()
        );
        assert!(pkcs1(&[7; 3], 13).is_none());
        assert!(pkcs1(&[7; 300], 128).is_none());
    }

    #[test]
    fn digests_are_taken_bare_and_in_a_digest_info() {
        for hash in HASHES {
            let digest = hsmux_software::digest(hash, b"data");
            let info = [hash.digest_info_prefix(), &digest].concat();
            assert_eq!(opened(&info), Some((hash, &digest[..])));
            assert_eq!(opened(&digest), Some((hash, &digest[..])));
        }
        assert_eq!(opened(&[0; 33]), None);
        assert_eq!(opened(&[]), None);
    }
}
