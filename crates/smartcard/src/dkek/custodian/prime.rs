//! Arithmetic modulo a prime of 64 bits.

use crate::dkek::random as random_bytes;

/// A random prime of 64 bits.
pub fn random() -> u64 {
    loop {
        // Odd, and at least 2^63, which is above every password.
        let candidate = u64::from_be_bytes(*random_bytes()) | 1 << 63 | 1;
        if is_prime(candidate) {
            return candidate;
        }
    }
}

pub fn add(a: u64, b: u64, modulus: u64) -> u64 {
    ((u128::from(a) + u128::from(b)) % u128::from(modulus)) as u64
}

pub fn mul(a: u64, b: u64, modulus: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(modulus)) as u64
}

/// By Fermat's little theorem; the modulus is a prime.
pub fn inverse(number: u64, prime: u64) -> u64 {
    power(number, prime - 2, prime)
}

fn power(base: u64, exponent: u64, modulus: u64) -> u64 {
    let bits = (0..u64::BITS).rev().map(|bit| exponent >> bit & 1);
    bits.fold(1, |result, bit| {
        let square = mul(result, result, modulus);
        if bit == 1 {
            mul(square, base, modulus)
        } else {
            square
        }
    })
}

/// Miller and Rabin's test; with the first twelve primes as bases it is exact for 64 bits (Sorenson, Webster 2015).
pub fn is_prime(number: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if number < 2 || BASES.contains(&number) {
        return number >= 2;
    }
    let twos = (number - 1).trailing_zeros();
    number % 2 == 1
        && BASES.iter().all(|base| {
            let mut x = power(*base, (number - 1) >> twos, number);
            x == 1
                || (0..twos).any(|_| {
                    let reached = x == number - 1;
                    x = mul(x, x, number);
                    reached
                })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_told_from_products() {
        let primes = [2, 3, 41, 65_537, 4_294_967_291, 18_446_744_073_709_551_557];
        assert!(primes.into_iter().all(is_prime));
        // Among them a Carmichael number and strong pseudoprimes to small bases.
        let others = [
            0,
            1,
            4,
            561,
            2_047,
            3_215_031_751,
            341_550_071_728_321,
            u64::MAX,
        ];
        assert!(!others.into_iter().any(is_prime));
    }

    #[test]
    fn inverses_invert() {
        let prime = random();
        for number in [1, 2, 3, prime - 1, prime / 2] {
            assert_eq!(mul(number, inverse(number, prime), prime), 1);
        }
    }
}
