//! Input data on its way to the key.

use bytes::Bytes;
use hsmux_software::{Hasher, prehashed_input};
use hsmux_token::Mechanism;
use hsmux_token::ck::{CKM_DSA, CKM_ECDSA, CKR_DATA_LEN_RANGE};

use super::blocks::Blocks;
use crate::rv::{Result, Rv};

/// The most that is gathered for a mechanism that wants all data at once, in bytes: what one frame
/// carries, with room for what is around it.
const LIMIT: usize = (16 << 20) - (64 << 10);

/// Data on its way.
#[derive(Clone)]
pub enum OperationInput {
    /// Gathered, for mechanisms that need all of it.
    Gather(Vec<u8>),
    /// Hashed in this process: only the digest goes on.
    Hash(Hasher),
    /// Enciphered block by block.
    Blocks(Box<Blocks>),
}

impl OperationInput {
    /// Takes a part that has no output; block ciphers take theirs in [`Blocks::update`].
    pub fn feed(&mut self, part: &[u8]) -> Result {
        match self {
            Self::Gather(data) if part.len() > LIMIT - data.len() => {
                return Err(Rv(CKR_DATA_LEN_RANGE));
            }
            Self::Gather(data) => data.extend_from_slice(part),
            Self::Hash(hasher) => hasher.update(part),
            Self::Blocks(_) => {}
        }
        Ok(())
    }

    /// How much has been gathered.
    pub fn gathered(&self) -> usize {
        match self {
            Self::Gather(data) => data.len(),
            Self::Hash(_) | Self::Blocks(_) => 0,
        }
    }

    /// The input of the key's mechanism: all parts and the `last`; may be called again.
    ///
    /// `signature_len` is that of the key: CKM_ECDSA and CKM_DSA take as many bytes of a digest as the order has
    /// (FIPS 186-5, section 6.4.1; FIPS 186-4, section 4.6). Some tokens leave that to the caller.
    pub fn all(&self, last: &[u8], raw: &Mechanism, signature_len: Option<usize>) -> Result<Bytes> {
        match self {
            Self::Gather(data) if last.len() > LIMIT - data.len() => Err(Rv(CKR_DATA_LEN_RANGE)),
            Self::Gather(data) if data.is_empty() => Ok(Bytes::copy_from_slice(last)),
            Self::Gather(data) => Ok([data, last].concat().into()),
            Self::Hash(hasher) => {
                let mut hasher = hasher.clone();
                let hash = hasher.hash();
                hasher.update(last);
                let mut digest = hasher.finish();
                if matches!(raw.kind, CKM_ECDSA | CKM_DSA) {
                    digest.truncate(signature_len.map_or(digest.len(), |len| len / 2));
                }
                Ok(prehashed_input(hash, raw, &digest).into_owned().into())
            }
            Self::Blocks(_) => Ok(Bytes::copy_from_slice(last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input that no frame can carry is refused before it is gathered.
    #[test]
    fn data_that_is_wanted_at_once_has_a_limit() {
        let raw = Mechanism::plain(CKM_ECDSA);
        let too_long = Err(Rv(CKR_DATA_LEN_RANGE));
        let mut input = OperationInput::Gather(vec![0; LIMIT - 1]);
        assert_eq!(input.feed(&[0; 2]), too_long);
        assert_eq!(input.all(&[0; 2], &raw, None).map(drop), too_long);
        assert_eq!(input.all(&[0], &raw, None).unwrap().len(), LIMIT);
        input.feed(&[0]).unwrap();
        assert_eq!(input.gathered(), LIMIT);
        assert_eq!(input.feed(&[0]), too_long);
    }
}
