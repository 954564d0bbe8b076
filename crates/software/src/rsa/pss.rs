//! EMSA-PSS (RFC 8017, section 9.1.2).

use hsmux_token::{Error, Pss, Result, ck};

/// Whether the encoded `message` is of the digest `data`; `bits` are those of the modulus less one.
pub fn verify(params: &Pss, data: &[u8], message: &[u8], bits: usize) -> Result<bool> {
    let (hash, mgf) = super::hashes("C_Verify", params.hash, params.mgf)?;
    if data.len() != hash.len() {
        return Err(Error::vendor("C_Verify", ck::CKR_DATA_LEN_RANGE));
    }
    // One byte shorter than the modulus where its size is a multiple of 8 plus 1.
    let len = bits.div_ceil(8);
    let (surplus, message) = message.split_at(message.len() - len);
    let salt = usize::try_from(params.salt).unwrap_or(usize::MAX);
    let Some(zeros) = len.checked_sub(salt.saturating_add(hash.len() + 2)) else {
        return Ok(false);
    };
    let (masked, rest) = message.split_at(len - hash.len() - 1);
    let (digest, trailer) = rest.split_at(hash.len());
    let unused = 8 * len - bits;
    let top_is_clear = masked[0].leading_zeros() as usize >= unused;

    let mut block = masked.to_vec();
    super::mask(mgf, digest, &mut block);
    block[0] &= 0xff >> unused;
    let (padding, salt) = block.split_at(zeros + 1);

    let mut expected = crate::Hasher::new(hash);
    expected.update(&[0; 8]);
    expected.update(data);
    expected.update(salt);
    Ok(surplus.iter().all(|byte| *byte == 0)
        && trailer == [0xbc]
        && top_is_clear
        && padding[..zeros].iter().all(|byte| *byte == 0)
        && padding[zeros] == 1
        && expected.finish() == digest)
}
