//! The curves of a SmartCard-HSM.

use std::sync::{LazyLock, OnceLock};

use num_bigint::BigUint;

use super::domain::{ROWS, Row};
use super::point::{Multiples, Point};

/// A curve y² = x³ + ax + b over the field of a prime, of prime order (cofactor 1).
pub struct Curve {
    /// As it is commonly called: `P-256`, `brainpoolP256r1`.
    pub name: &'static str,
    /// Bytes of a coordinate.
    pub len: usize,
    /// The prime of the field.
    pub p: BigUint,
    /// First coefficient.
    pub a: BigUint,
    /// Second coefficient.
    pub b: BigUint,
    /// The generator's coordinates.
    pub g: (BigUint, BigUint),
    /// Its order.
    pub n: BigUint,
    multiples: OnceLock<Multiples>,
}

static CURVES: LazyLock<Vec<Curve>> = LazyLock::new(|| ROWS.iter().map(Curve::new).collect());

/// All of them.
pub fn all() -> &'static [Curve] {
    &CURVES
}

/// The curve of this name.
pub fn named(name: &str) -> Option<&'static Curve> {
    all().iter().find(|curve| curve.name == name)
}

/// The curve over the field of this prime: no two of the table share one.
pub fn over(prime: &[u8]) -> Option<&'static Curve> {
    let prime = BigUint::from_bytes_be(prime);
    all().iter().find(|curve| curve.p == prime)
}

impl Curve {
    fn new(&(name, p, a, b, g, n): &Row) -> Self {
        let number = |digits: &str| BigUint::parse_bytes(digits.as_bytes(), 16).unwrap_or_default();
        let (x, y) = g.split_at(g.len() / 2);
        Self {
            name,
            len: p.len() / 2,
            p: number(p),
            a: number(a),
            b: number(b),
            g: (number(x), number(y)),
            n: number(n),
            multiples: OnceLock::new(),
        }
    }

    /// `scalar` times the generator, from a table that the first call makes.
    pub fn times_generator(&self, scalar: &BigUint) -> Point {
        self.multiples
            .get_or_init(|| Multiples::of(self, &self.generator()))
            .times(self, scalar)
    }

    /// The generator.
    pub fn generator(&self) -> Point {
        Point::affine(self.g.0.clone(), self.g.1.clone())
    }

    /// The domain parameters as a CVC and a wrapped key have them: p, a, b, G, n, each at full length.
    pub fn parameters(&self) -> [Vec<u8>; 5] {
        let full = |number| super::to_bytes(number, self.len);
        let g = [&[4][..], &full(&self.g.0), &full(&self.g.1)].concat();
        [
            full(&self.p),
            full(&self.a),
            full(&self.b),
            g,
            full(&self.n),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generator_is_on_its_curve_and_has_its_order() {
        assert_eq!(all().len(), 12);
        for curve in all() {
            let g = curve.generator();
            assert!(g.on(curve), "{}", curve.name);
            assert!(
                curve.times_generator(&curve.n).is_infinity(),
                "{}",
                curve.name
            );
            assert!(std::ptr::eq(over(&curve.parameters()[0]).unwrap(), curve));
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
