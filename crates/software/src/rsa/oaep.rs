//! EME-OAEP (RFC 8017, section 7.1.1).

use hsmux_token::{Error, Oaep, Result, ck};

/// The block of `len` bytes that is enciphered.
pub fn encode(call: &str, params: &Oaep, data: &[u8], len: usize) -> Result<Vec<u8>> {
    let (hash, mgf) = super::hashes(call, params.hash, params.mgf)?;
    let zeros = len
        .checked_sub(data.len() + 2 * hash.len() + 2)
        .ok_or_else(|| Error::vendor(call, ck::CKR_DATA_LEN_RANGE))?;
    let label = crate::digest(hash, &params.label);
    let mut block = [&label[..], &vec![0; zeros], &[1], data].concat();
    let mut seed = vec![0; hash.len()];
    super::random(&mut seed)?;
    super::mask(mgf, &seed, &mut block);
    super::mask(mgf, &block, &mut seed);
    Ok([&[0], &seed[..], &block].concat())
}
