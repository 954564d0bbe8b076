//! Random bytes of the operating system: nonces, IVs and names of requests, never keys.
//!
//! Each thread takes them in blocks: asking the system costs as much as a fast token's whole work.

use std::cell::RefCell;

use hsmux_token::{Error, Kind, Result};
use zeroize::{Zeroize, Zeroizing};

/// Bytes that are asked for at once: up to 256 the system gives all or none (getrandom(2)).
const BLOCK: usize = 256;

struct Stock {
    bytes: Zeroizing<[u8; BLOCK]>,
    left: usize,
}

thread_local! {
    static STOCK: RefCell<Stock> = RefCell::new(Stock {
        bytes: Zeroizing::new([0; BLOCK]),
        left: 0,
    });
}

/// Bytes that nobody has had and nobody will have again.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    const { assert!(N <= BLOCK) };
    STOCK.with_borrow_mut(|stock| {
        if stock.left < N {
            stock.left = 0;
            getrandom::fill(&mut stock.bytes[..])
                .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
            stock.left = BLOCK;
        }
        let rest = stock.left - N;
        let taken = &mut stock.bytes[rest..stock.left];
        let mut bytes = [0; N];
        bytes.copy_from_slice(taken);
        taken.zeroize();
        stock.left = rest;
        Ok(bytes)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn none_comes_twice_nor_is_left_as_zeros() {
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let (short, long) = (random::<12>().unwrap(), random::<16>().unwrap());
            for part in [&short[..8], &short[4..], &long[..8], &long[8..]] {
                assert_ne!(part, [0; 8]);
            }
            assert!(seen.insert(short.to_vec()) && seen.insert(long.to_vec()));
        }
    }
}
