//! EMSA-PSS (RFC 8017, section 9.1.2).

use hsmux_token::{Error, Hash, Pss, Result, ck};

/// Verifies the encoded `message` against the digest `data`; `bits` are those of the modulus less one.
pub fn verify(params: &Pss, data: &[u8], message: &[u8], bits: usize) -> Result<bool> {
    let (hash, mgf) = super::hashes("C_Verify", params.hash, params.mgf)?;
    if data.len() != hash.len() {
        return Err(Error::vendor("C_Verify", ck::CKR_DATA_LEN_RANGE));
    }
    let salt = usize::try_from(params.salt).unwrap_or(usize::MAX);
    let Some(encoded) = EncodedMessage::read(hash, mgf, message, bits) else {
        return Ok(false);
    };
    let Some(zeros) = encoded.block.len().checked_sub(salt.saturating_add(1)) else {
        return Ok(false);
    };
    let (padding, salt) = encoded.block.split_at(zeros + 1);

    let mut expected = crate::Hasher::new(hash);
    expected.update(&[0; 8]);
    expected.update(data);
    expected.update(salt);
    Ok(encoded.is_well_formed
        && padding[..zeros].iter().all(|byte| *byte == 0)
        && padding[zeros] == 1
        && expected.finish() == encoded.digest)
}

/// The bytes of salt in an encoded message: what follows the zeros and the 1. Whatever this is, [`verify`] decides.
pub fn salt(params: &Pss, message: &[u8], bits: usize) -> Result<Option<u64>> {
    let (hash, mgf) = super::hashes("C_Verify", params.hash, params.mgf)?;
    let encoded = EncodedMessage::read(hash, mgf, message, bits);
    Ok(encoded.and_then(|EncodedMessage { block, .. }| {
        let zeros = block.iter().position(|byte| *byte != 0)?;
        Some((block.len() - zeros - 1) as u64)
    }))
}

/// The parts of an encoded message.
struct EncodedMessage<'a> {
    /// True if its trailer and its first bits are right.
    is_well_formed: bool,
    /// Zeros, a 1 and the salt, unmasked.
    block: Vec<u8>,
    digest: &'a [u8],
}

impl<'a> EncodedMessage<'a> {
    /// `None` if it has no room for a digest.
    fn read(hash: Hash, mgf: Hash, message: &'a [u8], bits: usize) -> Option<Self> {
        // One byte shorter than the modulus where its size is a multiple of 8 plus 1.
        let len = bits.div_ceil(8);
        let (surplus, message) = message.split_at(message.len() - len);
        let (masked, rest) = message.split_at(len.checked_sub(hash.len() + 1)?);
        let (digest, trailer) = rest.split_at(hash.len());
        let unused = 8 * len - bits;
        let top_is_clear = masked.first()?.leading_zeros() as usize >= unused;
        let mut block = masked.to_vec();
        super::mask(mgf, digest, &mut block);
        block[0] &= 0xff >> unused;
        let surplus_is_clear = surplus.iter().all(|byte| *byte == 0);
        Some(Self {
            is_well_formed: surplus_is_clear && trailer == [0xbc] && top_is_clear,
            block,
            digest,
        })
    }
}
