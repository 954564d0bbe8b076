//! Keys on a curve: ECDSA and ECDH.

use num_bigint::BigUint;

use super::curve::Curve;
use super::point::Point;
use super::{random_below, to_bytes};

/// A private key with its public point.
pub struct EcKey {
    /// The curve.
    pub curve: &'static Curve,
    /// The private scalar.
    pub d: BigUint,
    /// The public point, uncompressed: 04, x, y.
    pub q: Vec<u8>,
}

impl EcKey {
    /// A new key.
    pub fn generate(curve: &'static Curve) -> Self {
        let d = random_below(&curve.n);
        let q = encode(curve, &curve.times_generator(&d)).unwrap_or_default();
        Self { curve, d, q }
    }

    /// From the private scalar, if it is valid.
    pub fn new(curve: &'static Curve, d: BigUint) -> Option<Self> {
        let in_range = d != BigUint::ZERO && d < curve.n;
        let q = in_range.then(|| curve.times_generator(&d))?;
        let q = encode(curve, &q)?;
        Some(Self { curve, d, q })
    }

    /// ECDSA of a digest of any length: r and s (FIPS 186-5, section 6.4.1).
    pub fn sign(&self, digest: &[u8]) -> (BigUint, BigUint) {
        let n = &self.curve.n;
        let z = leftmost_bits(digest, n.bits());
        loop {
            let k = random_below(n);
            let point = self.curve.times_generator(&k).coordinates(self.curve);
            let (Some((x, _)), Some(inverse)) = (point, k.modinv(n)) else {
                continue;
            };
            let r = x % n;
            let s = inverse * (&z + &r * &self.d) % n;
            if r != BigUint::ZERO && s != BigUint::ZERO {
                return (r, s);
            }
        }
    }

    /// r and s concatenated, as in certificates of cards (BSI TR-03111, section 5.2.1).
    pub fn sign_plain(&self, digest: &[u8]) -> Vec<u8> {
        let (r, s) = self.sign(digest);
        let len = self.curve.n.bits().div_ceil(8) as usize;
        [to_bytes(&r, len), to_bytes(&s, len)].concat()
    }

    /// ECDH: the shared point, uncompressed; `None` if `peer` is not on the curve.
    pub fn agree(&self, peer: &[u8]) -> Option<Vec<u8>> {
        let peer = decode(self.curve, peer)?;
        encode(self.curve, &peer.times(self.curve, &self.d))
    }
}

fn encode(curve: &Curve, point: &Point) -> Option<Vec<u8>> {
    let (x, y) = point.coordinates(curve)?;
    Some([vec![4], to_bytes(&x, curve.len), to_bytes(&y, curve.len)].concat())
}

fn decode(curve: &Curve, bytes: &[u8]) -> Option<Point> {
    let coordinates = bytes.strip_prefix(&[4])?;
    if coordinates.len() != 2 * curve.len {
        return None;
    }
    let (x, y) = coordinates.split_at(curve.len);
    let point = Point::affine(BigUint::from_bytes_be(x), BigUint::from_bytes_be(y));
    point.on(curve).then_some(point)
}

/// The number in the leftmost bits of a digest that is longer than the order.
fn leftmost_bits(digest: &[u8], bits: u64) -> BigUint {
    let surplus = (digest.len() as u64 * 8).saturating_sub(bits);
    BigUint::from_bytes_be(digest) >> surplus
}

#[cfg(test)]
mod tests {
    use hsmux_token::Hash;

    use super::*;
    use crate::crypto::curve::{self, named};

    /// Verification of ECDSA (FIPS 186-5, section 6.4.2), for curves without another verifier here.
    fn genuine(key: &EcKey, digest: &[u8], (r, s): &(BigUint, BigUint)) -> bool {
        let (curve, n) = (key.curve, &key.curve.n);
        let w = s.modinv(n).unwrap();
        let u1 = leftmost_bits(digest, n.bits()) * &w % n;
        let u2 = r * w % n;
        let q = decode(curve, &key.q).unwrap();
        // Both sides as known multiples: u1 G + u2 Q = (u1 + u2 d) G.
        let sum = curve.times_generator(&((u1 + &u2 * &key.d) % n));
        assert!(q.on(curve));
        sum.coordinates(curve).unwrap().0 % n == *r
    }

    #[test]
    fn signatures_on_every_curve_verify() {
        for curve in curve::all() {
            let key = EcKey::generate(curve);
            for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha512] {
                let digest = hsmux_software::digest(hash, curve.name.as_bytes());
                let signature = key.sign(&digest);
                assert!(genuine(&key, &digest, &signature), "{}", curve.name);
                let other = hsmux_software::digest(hash, b"something else");
                assert!(!genuine(&key, &other, &signature), "{}", curve.name);
            }
        }
    }

    #[test]
    fn both_sides_agree() {
        for curve in curve::all() {
            let (one, other) = (EcKey::generate(curve), EcKey::generate(curve));
            assert_eq!(one.agree(&other.q), other.agree(&one.q), "{}", curve.name);
            assert!(one.agree(&other.q).is_some());
            let mut off = other.q.clone();
            *off.last_mut().unwrap() ^= 1;
            assert!(one.agree(&off).is_none());
            assert!(one.agree(&other.q[..curve.len]).is_none());
        }
    }

    /// RFC 5903, section 8.1: the 256-bit random ECP group.
    #[test]
    fn agreement_of_rfc_5903() {
        let number = |hex: &str| BigUint::parse_bytes(hex.as_bytes(), 16).unwrap();
        let p256 = named("P-256").unwrap();
        let i = "C88F01F510D9AC3F70A292DAA2316DE544E9AAB8AFE84049C62A9C57862D1433";
        let r = "C6EF9C5D78AE012A011164ACB397CE2088685D8F06BF9BE0B283AB46476BEE53";
        let initiator = EcKey::new(p256, number(i)).unwrap();
        let responder = EcKey::new(p256, number(r)).unwrap();
        let shared = initiator.agree(&responder.q).unwrap();
        let x = "D6840F6B42F6EDAFD13116E0E12565202FEF8E9ECE7DCE03812464D04B9442DE";
        assert_eq!(BigUint::from_bytes_be(&shared[1..33]), number(x));
    }

    #[test]
    fn what_is_no_private_scalar_is_refused() {
        let p256 = named("P-256").unwrap();
        assert!(EcKey::new(p256, BigUint::ZERO).is_none());
        assert!(EcKey::new(p256, p256.n.clone()).is_none());
    }
}
