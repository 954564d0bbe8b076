//! RSA-2048, PKCS#1 v1.5 (RFC 8017).

use num_bigint::BigUint;

use super::primes::PRIMES;

/// Length of the modulus in bytes.
pub const LEN: usize = 256;

/// A key in CRT form.
pub struct Rsa {
    n: BigUint,
    primes: [Prime; 2],
    /// The inverse of the second prime modulo the first.
    coefficient: BigUint,
}

struct Prime {
    p: BigUint,
    /// The private exponent modulo `p - 1`.
    d: BigUint,
}

impl Rsa {
    pub(super) fn of(seed: u64) -> Self {
        let e = BigUint::from(65_537_u32);
        let [p, q] = PRIMES[(seed % 2) as usize].map(|hex| {
            let p = BigUint::parse_bytes(hex.as_bytes(), 16).expect("hex");
            let d = e.modinv(&(&p - 1_u32)).expect("e is prime to p - 1");
            Prime { p, d }
        });
        Self {
            n: &p.p * &q.p,
            coefficient: q.p.modinv(&p.p).expect("two primes"),
            primes: [p, q],
        }
    }

    /// CKA_MODULUS; CKA_PUBLIC_EXPONENT is 65537.
    pub fn modulus(&self) -> Vec<u8> {
        self.n.to_bytes_be()
    }

    /// CKM_RSA_PKCS: signs a DigestInfo of at most 245 bytes.
    pub fn sign(&self, data: &[u8]) -> Option<Vec<u8>> {
        let padding = LEN.checked_sub(data.len() + 3).filter(|n| *n >= 8)?;
        let block = [&[0, 1][..], &vec![0xff; padding], &[0], data].concat();
        self.private(&block)
    }

    /// CKM_RSA_PKCS: decrypts.
    pub fn decrypt(&self, text: &[u8]) -> Option<Vec<u8>> {
        let block = self.private(text)?;
        let rest = block.strip_prefix(&[0, 2])?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        (end >= 8).then(|| rest[end + 1..].to_vec())
    }

    fn private(&self, block: &[u8]) -> Option<Vec<u8>> {
        let c = BigUint::from_bytes_be(block);
        if c >= self.n {
            return None;
        }
        let [first, second] = &self.primes;
        let (m1, m2) = (c.modpow(&first.d, &first.p), c.modpow(&second.d, &second.p));
        // Garner: m2 may be larger than m1.
        let difference = (m1 + &first.p - &m2 % &first.p) * &self.coefficient % &first.p;
        let m = (m2 + difference * &second.p).to_bytes_be();
        let mut padded = vec![0; LEN - m.len()];
        padded.extend(m);
        Some(padded)
    }
}
