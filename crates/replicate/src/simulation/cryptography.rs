//! Cryptography that a token can do without arithmetic, and that real code accepts.
//!
//! A modulus is a product of different primes q for which q - 1 divides a number L. Then x^(L + 1) = x modulo each of them,
//! and so modulo their product. With the public exponent L + 1 an encrypted block is the block itself.

use std::sync::OnceLock;

use hsmux_token::Blob;
use sha2::{Digest, Sha256};

use hsmux_token::fake::Random;

/// 2^4 * 3^3 * 5^2 * 7 * 11 * 13.
const L: u32 = 10_810_800;

/// The public exponent of all keys, big-endian.
pub(super) fn exponent() -> Vec<u8> {
    (L + 1).to_be_bytes().to_vec()
}

/// The value of an object, which its token keeps to itself.
#[derive(Clone)]
pub(super) enum Secret {
    None,
    /// A secret key.
    Number(u64),
    /// A private key, or a public one: the modulus.
    Modulus(Blob),
}

impl Secret {
    /// A new key pair with a modulus of so many bits, or a few more.
    pub fn pair(random: &mut Random, bits: usize) -> Self {
        let mut modulus = vec![1_u32];
        let mut primes = primes().to_vec();
        while bit_length(&modulus) < bits {
            let at = random.below(primes.len() as u64) as usize;
            multiply(&mut modulus, primes.swap_remove(at));
        }
        let bytes = modulus.iter().rev().flat_map(|limb| limb.to_be_bytes());
        let bytes: Vec<u8> = bytes.skip_while(|byte| *byte == 0).collect();
        Self::Modulus(bytes.into())
    }

    /// Tells keys apart.
    pub fn number(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Number(number) => *number,
            Self::Modulus(modulus) => {
                let digest = Sha256::digest(&modulus[..]);
                u64::from_be_bytes(digest[..8].try_into().expect("8 bytes"))
            }
        }
    }

    /// CKA_CHECK_VALUE of a secret key.
    pub fn check_value(&self) -> Vec<u8> {
        self.number().to_be_bytes()[..3].to_vec()
    }

    /// Wraps a key under this one.
    pub fn wrap(&self, key: &Self) -> Vec<u8> {
        let mut wrapped = [MAGIC, &self.number().to_be_bytes()].concat();
        match key {
            Self::None => {}
            Self::Number(number) => wrapped.extend([&[0], &number.to_be_bytes()[..]].concat()),
            Self::Modulus(modulus) => wrapped.extend([&[1], &modulus[..]].concat()),
        }
        wrapped
    }

    /// The key that was wrapped under this one.
    pub fn unwrap(&self, wrapped: &[u8]) -> Option<Self> {
        let wrapped = wrapped.strip_prefix(MAGIC)?;
        let (under, key) = wrapped.split_at_checked(8)?;
        if under != self.number().to_be_bytes() {
            return None;
        }
        match key.split_first()? {
            (0, number) => Some(Self::Number(u64::from_be_bytes(number.try_into().ok()?))),
            (_, modulus) => Some(Self::Modulus(modulus.to_vec().into())),
        }
    }

    /// A signature by CKM_RSA_PKCS (RFC 8017, section 9.2).
    pub fn sign(&self, data: &[u8]) -> Option<Vec<u8>> {
        let Self::Modulus(modulus) = self else {
            return None;
        };
        let padding = vec![0xff; modulus.len().checked_sub(3 + data.len())?];
        Some([&[0, 1], &padding[..], &[0], data].concat())
    }
}

/// The beginning of every wrapped key.
pub(super) const MAGIC: &[u8] = b"WRAPPED!";

/// The message of an RSA-OAEP block with SHA-256 (RFC 8017, section 7.1.2).
pub(super) fn oaep_message(block: &[u8]) -> Option<Vec<u8>> {
    let (seed, rest) = block.get(1..)?.split_at_checked(32)?;
    let seed = masked(seed, rest);
    let rest = masked(rest, &seed);
    let padded = rest.get(32..)?;
    let one = padded.iter().position(|byte| *byte == 1)?;
    Some(padded[one + 1..].to_vec())
}

/// MGF1 with SHA-256.
fn masked(bytes: &[u8], seed: &[u8]) -> Vec<u8> {
    let blocks = (0_u32..).flat_map(|counter| {
        let block = [seed, &counter.to_be_bytes()].concat();
        <[u8; 32]>::from(Sha256::digest(block))
    });
    bytes
        .iter()
        .zip(blocks)
        .map(|(byte, mask)| byte ^ mask)
        .collect()
}

/// All odd primes q for which q - 1 divides L.
fn primes() -> &'static [u32] {
    static PRIMES: OnceLock<Vec<u32>> = OnceLock::new();
    PRIMES.get_or_init(|| {
        let small = (1..=L.isqrt()).filter(|divisor| L.is_multiple_of(*divisor));
        let divisors = small.flat_map(|divisor| [divisor, L / divisor]);
        let is_prime =
            |q: &u32| *q > 2 && (2..=q.isqrt()).all(|divisor| !q.is_multiple_of(divisor));
        let mut primes: Vec<u32> = divisors
            .map(|divisor| divisor + 1)
            .filter(is_prime)
            .collect();
        primes.sort_unstable();
        primes.dedup();
        primes
    })
}

/// Limbs, the lowest first.
fn multiply(number: &mut Vec<u32>, by: u32) {
    let mut carry = 0;
    for limb in number.iter_mut() {
        let product = u64::from(*limb) * u64::from(by) + carry;
        *limb = product as u32;
        carry = product >> 32;
    }
    if carry > 0 {
        number.push(carry as u32);
    }
}

fn bit_length(number: &[u32]) -> usize {
    let last = number.last().map_or(0, |limb| 32 - limb.leading_zeros());
    number.len().saturating_sub(1) * 32 + last as usize
}
