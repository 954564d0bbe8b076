//! A card's cryptography, in pure Rust: it protects no secrets anyway, and a C library
//! would conflict with the gateway's in the same program.
#![allow(
    clippy::many_single_char_names,
    reason = "the letters are those of the standards"
)]

pub mod aes;
pub mod curve;
pub mod ec;
pub mod padding;
mod point;
pub mod rsa;

use num_bigint::BigUint;

/// Random bytes of the operating system.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fill(&mut bytes);
    bytes
}

/// Fills with random bytes of the operating system.
pub fn fill(bytes: &mut [u8]) {
    // Nothing works without it; on Linux it cannot fail after the system's start.
    getrandom::fill(bytes).expect("the operating system gives random bytes");
}

/// A number below `bound`, and not 0.
pub fn random_below(bound: &BigUint) -> BigUint {
    // 64 bits more than needed: the remainder favours no number by more than 2^-64.
    let mut bytes = vec![0; bound.bits().div_ceil(8) as usize + 8];
    fill(&mut bytes);
    BigUint::from_bytes_be(&bytes) % (bound - 1u32) + 1u32
}

/// Big-endian with exactly `len` bytes; longer numbers keep their last bytes.
pub fn to_bytes(number: &BigUint, len: usize) -> Vec<u8> {
    let bytes = number.to_bytes_be();
    let excess = bytes.len().saturating_sub(len);
    let mut padded = vec![0; len.saturating_sub(bytes.len())];
    padded.extend_from_slice(&bytes[excess..]);
    padded
}
