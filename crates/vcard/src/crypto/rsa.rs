//! RSA with the private key, by the Chinese remainder theorem (RFC 8017, section 5.1.2).

use crypto_primes::hazmat::{SetBits, SmallFactorsSieveFactory};
use crypto_primes::{Flavor, is_prime, sieve_and_find};
use num_bigint::BigUint;
use rand_core::UnwrapErr;

use super::{random_below, to_bytes};

/// A private key with two primes.
pub struct RsaKey {
    /// Modulus.
    pub n: BigUint,
    /// Public exponent.
    pub e: BigUint,
    /// Private exponent.
    pub d: BigUint,
    /// The primes; p is the larger one.
    pub p: BigUint,
    /// The other prime.
    pub q: BigUint,
    dp: BigUint,
    dq: BigUint,
    q_inverse: BigUint,
}

impl RsaKey {
    /// Generates a key; `None` if the exponent permits none of this size.
    pub fn generate(bits: usize, e: &BigUint) -> Option<Self> {
        let odd_and_small = e.bit(0) && (2..=64).contains(&e.bits());
        if !odd_and_small || !(1024..=4096).contains(&bits) || !bits.is_multiple_of(256) {
            return None;
        }
        loop {
            let key = Self::from_primes(prime(bits / 2)?, prime(bits / 2)?, e.clone());
            // The two highest bits of a prime are set, so only an exponent that divides p - 1 fails.
            if key.as_ref().is_some_and(|key| key.bits() == bits) {
                return key;
            }
        }
    }

    /// From the primes and the public exponent.
    pub fn from_primes(p: BigUint, q: BigUint, e: BigUint) -> Option<Self> {
        let (p, q) = if p > q { (p, q) } else { (q, p) };
        let one = BigUint::from(1u32);
        if q <= one || p == q {
            return None;
        }
        let (p1, q1) = (&p - &one, &q - &one);
        let d = e.modinv(&(&p1 * &q1))?;
        Some(Self {
            n: &p * &q,
            dp: &d % p1,
            dq: &d % q1,
            q_inverse: q.modinv(&p)?,
            e,
            d,
            p,
            q,
        })
    }

    /// From modulus and both exponents, by recovery of the primes (NIST SP 800-56B, appendix C.2).
    pub fn from_exponents(n: &BigUint, e: &BigUint, d: &BigUint) -> Option<Self> {
        let one = BigUint::from(1u32);
        let sane = n.bit(0) && (512..=4096).contains(&n.bits()) && e < n && d < n;
        let k = (sane && d > &one && e > &one).then(|| e * d - &one)?;
        let twos = k.trailing_zeros().filter(|twos| *twos > 0)?;
        let odd = &k >> twos;
        // Each try finds a square root of 1 other than 1 and -1 with a probability of 1/2.
        for _ in 0..100 {
            let mut root = random_below(n).modpow(&odd, n);
            for _ in 0..twos {
                let square = &root * &root % n;
                if square == one && root != one && root != n - &one {
                    let p = gcd(root - &one, n.clone());
                    return Self::from_primes(p.clone(), n / p, e.clone());
                }
                root = square;
            }
        }
        None
    }

    /// Size of the modulus.
    pub fn bits(&self) -> usize {
        self.n.bits() as usize
    }

    /// Length of the modulus in bytes.
    pub fn len(&self) -> usize {
        self.bits().div_ceil(8)
    }

    /// `block` to the power of the private exponent; `None` if it is not below the modulus.
    pub fn private(&self, block: &[u8]) -> Option<Vec<u8>> {
        let c = BigUint::from_bytes_be(block);
        if c >= self.n {
            return None;
        }
        let m1 = (&c % &self.p).modpow(&self.dp, &self.p);
        let m2 = (&c % &self.q).modpow(&self.dq, &self.q);
        // q is smaller than p: adding p once makes the difference positive.
        let h = (m1 + &self.p - &m2) * &self.q_inverse % &self.p;
        Some(to_bytes(&(m2 + h * &self.q), self.len()))
    }
}

fn prime(bits: usize) -> Option<BigUint> {
    use crypto_bigint::BoxedUint;

    let factory =
        SmallFactorsSieveFactory::<BoxedUint>::new(Flavor::Any, bits as u32, SetBits::TwoMsb);
    let mut random = UnwrapErr(getrandom_rng::SysRng);
    let found = sieve_and_find(&mut random, factory.ok()?, |_, candidate| {
        is_prime(Flavor::Any, candidate)
    });
    Some(BigUint::from_bytes_be(&found.ok()??.to_be_bytes()))
}

fn gcd(mut a: BigUint, mut b: BigUint) -> BigUint {
    while b != BigUint::ZERO {
        (a, b) = (b.clone(), a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_private_key_does_the_public_one_undoes() {
        let e = BigUint::from(65_537u32);
        let key = RsaKey::generate(1024, &e).unwrap();
        assert_eq!((key.bits(), key.len()), (1024, 128));
        let block = to_bytes(&random_below(&key.n), 128);
        let signature = key.private(&block).unwrap();
        let opened = BigUint::from_bytes_be(&signature).modpow(&key.e, &key.n);
        assert_eq!(to_bytes(&opened, 128), block);
        assert!(key.private(&[0xFF; 128]).is_none());

        let again = RsaKey::from_exponents(&key.n, &key.e, &key.d).unwrap();
        assert_eq!((again.p, again.q), (key.p, key.q));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let e = BigUint::from(65_537u32);
        assert!(RsaKey::generate(1000, &e).is_none());
        assert!(RsaKey::generate(8192, &e).is_none());
        assert!(RsaKey::generate(1024, &BigUint::from(4u32)).is_none());
        let one = BigUint::from(1u32);
        assert!(RsaKey::from_exponents(&one, &one, &one).is_none());
        let n = (BigUint::from(1u32) << 1024usize) + 1u32;
        assert!(RsaKey::from_exponents(&n, &e, &BigUint::from(12_345u32)).is_none());
        assert!(RsaKey::from_primes(e.clone(), e.clone(), e).is_none());
    }
}
