//! The paddings of PKCS#1 v1.5 (RFC 8017, sections 7.2.1 and 9.2).

use hsmux_token::{Error, Result, ck};

/// Two bytes in front, eight of padding, and a zero.
const OVERHEAD: usize = 11;

/// `00 01 FF.. 00 data`.
pub fn signature_block(call: &str, data: &[u8], len: usize) -> Result<Vec<u8>> {
    let padding = vec![0xff; padding_len(call, data, len)?];
    Ok([&[0, 1], &padding[..], &[0], data].concat())
}

/// `00 02 random, none of it zero, 00 data`.
pub fn encryption_block(call: &str, data: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut padding = vec![0; padding_len(call, data, len)?];
    super::random(&mut padding)?;
    for byte in &mut padding {
        while *byte == 0 {
            super::random(std::slice::from_mut(byte))?;
        }
    }
    Ok([&[0, 2], &padding[..], &[0], data].concat())
}

/// The content of a signature block; `None` if it is none.
pub fn signed_data(block: &[u8]) -> Option<&[u8]> {
    let padded = block.strip_prefix(&[0, 1])?;
    let end = padded.iter().position(|byte| *byte != 0xff)?;
    let long_enough = end >= OVERHEAD - 3;
    (long_enough && padded[end] == 0).then(|| &padded[end + 1..])
}

fn padding_len(call: &str, data: &[u8], len: usize) -> Result<usize> {
    if data.len() + OVERHEAD > len {
        return Err(Error::vendor(call, ck::CKR_DATA_LEN_RANGE));
    }
    Ok(len - data.len() - 3)
}
