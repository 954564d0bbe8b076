//! Random bytes of the operating system: nonces, IVs and ids of requests, never keys.
//!
//! Nonces are drawn only for a known text. A virtual machine that restarts from a snapshot would use stored bytes for
//! another text.

use std::cell::RefCell;

use hsmux_token::{Error, Kind, Result};

/// The length of a nonce or an IV, in bytes: that of the longest.
pub(crate) const NONCE_LEN: usize = 16;

/// The random bytes of a nonce or an IV, drawn when its text is known.
pub(crate) type Nonce = [u8; NONCE_LEN];

/// Bytes for ids of requests that are drawn at once: up to 256 the system gives all or none (getrandom(2)).
const NAMES: usize = 256;

/// Random bytes that are never used again.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

/// Draws a nonce for each text of a request, in order: one call costs as much as a fast token's work.
pub(crate) fn nonces(count: usize) -> Result<impl Iterator<Item = Nonce>> {
    let mut bytes = vec![0; count * NONCE_LEN];
    fill(&mut bytes)?;
    let nonce = move |at: usize| {
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&bytes[at * NONCE_LEN..][..NONCE_LEN]);
        nonce
    };
    Ok((0..count).map(nonce))
}

thread_local! {
    static REQUEST_NAMES: RefCell<([u8; NAMES], usize)> = const { RefCell::new(([0; NAMES], 0)) };
}

/// The id of a request, which needs no secrecy: the only bytes that are drawn in advance.
pub(crate) fn request_name() -> Result<[u8; 16]> {
    REQUEST_NAMES.with_borrow_mut(|(bytes, left)| {
        if *left == 0 {
            fill(bytes)?;
            *left = NAMES;
        }
        *left -= 16;
        let mut name = [0; 16];
        name.copy_from_slice(&bytes[*left..*left + 16]);
        Ok(name)
    })
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes)
        .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn none_comes_twice_nor_is_left_as_zeros() {
        let mut seen = HashSet::new();
        let batch: Vec<Nonce> = nonces(1000).unwrap().collect();
        assert_eq!(batch.len(), 1000);
        let names = (0..1000).map(|_| request_name().unwrap());
        for bytes in batch.into_iter().chain(names) {
            assert_ne!(bytes[..8], [0; 8]);
            assert_ne!(bytes[8..], [0; 8]);
            assert!(seen.insert(bytes));
        }
        assert!(seen.insert(random().unwrap()));
    }
}
