//! The curves of a SmartCard-HSM.

use std::sync::{LazyLock, OnceLock};

use hsmux_smartcard::Curve as Domain;
use num_bigint::BigUint;

use super::point::{Multiples, Point};

/// A curve y² = x³ + ax + b over the field of a prime, of prime order (cofactor 1).
pub struct Curve {
    /// Its common name: `P-256`, `brainpoolP256r1`.
    pub name: &'static str,
    /// Bytes of a coordinate.
    pub len: usize,
    /// The prime of the field.
    pub p: BigUint,
    /// First coefficient.
    pub a: BigUint,
    /// Second coefficient.
    pub b: BigUint,
    /// Order of the generator.
    pub n: BigUint,
    domain: &'static Domain,
    multiples: OnceLock<Multiples>,
}

static CURVES: LazyLock<Vec<Curve>> =
    LazyLock::new(|| Domain::ALL.iter().map(Curve::new).collect());

/// All curves.
pub fn all() -> &'static [Curve] {
    &CURVES
}

/// The curve of this name.
pub fn named(name: &str) -> Option<&'static Curve> {
    all().iter().find(|curve| curve.name == name)
}

/// The curve with these parameters; an empty one is not compared, because some hosts omit it.
pub fn with(prime: &[u8], a: &[u8], b: &[u8]) -> Option<&'static Curve> {
    let same = |ours: &BigUint, theirs: &[u8]| {
        theirs.is_empty() || *ours == BigUint::from_bytes_be(theirs)
    };
    let agrees = |curve: &&Curve| {
        !prime.is_empty() && same(&curve.p, prime) && same(&curve.a, a) && same(&curve.b, b)
    };
    all().iter().find(agrees)
}

impl Curve {
    fn new(domain: &'static Domain) -> Self {
        Self {
            name: domain.name,
            len: domain.field_len(),
            p: BigUint::from_bytes_be(domain.prime),
            a: BigUint::from_bytes_be(domain.a),
            b: BigUint::from_bytes_be(domain.b),
            n: BigUint::from_bytes_be(domain.order),
            domain,
            multiples: OnceLock::new(),
        }
    }

    /// `scalar` times the generator, from a table that the first call computes.
    pub fn times_generator(&self, scalar: &BigUint) -> Point {
        self.multiples
            .get_or_init(|| Multiples::of(self, &self.generator()))
            .times(self, scalar)
    }

    /// The generator.
    pub fn generator(&self) -> Point {
        let (x, y) = self.domain.generator[1..].split_at(self.len);
        Point::affine(BigUint::from_bytes_be(x), BigUint::from_bytes_be(y))
    }

    /// The domain parameters as in a CVC and a wrapped key: p, a, b, G, n, each at full length.
    pub fn parameters(&self) -> [&'static [u8]; 5] {
        let domain = self.domain;
        [
            domain.prime,
            domain.a,
            domain.b,
            domain.generator,
            domain.order,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generator_is_on_its_curve_and_has_its_order() {
        assert_eq!(all().len(), 19);
        for curve in all() {
            let g = curve.generator();
            assert!(g.on(curve), "{}", curve.name);
            assert!(
                curve.times_generator(&curve.n).is_infinity(),
                "{}",
                curve.name
            );
            let [p, a, b, ..] = curve.parameters();
            assert!(std::ptr::eq(with(p, a, b).unwrap(), curve));
            assert!(with(p, &[], b).is_some());
        }
    }

    #[test]
    fn a_multiple_by_table_is_a_multiple_by_doubling() {
        for curve in all() {
            let scalar = crate::crypto::random_below(&curve.n);
            let by_table = curve.times_generator(&scalar).coordinates(curve);
            let by_doubling = curve.generator().times(curve, &scalar).coordinates(curve);
            assert_eq!(by_table, by_doubling, "{}", curve.name);
        }
    }
}
