//! Points of a short Weierstrass curve in Jacobian coordinates (x/z², y/z³), on big integers.
//! One arithmetic for all nineteen curves: crates exist for nine of them, and a card may take a millisecond.

use num_bigint::BigUint;

use super::curve::Curve;

/// A point, possibly the one at infinity (z is 0).
#[derive(Clone)]
pub struct Point {
    x: BigUint,
    y: BigUint,
    z: BigUint,
}

impl Point {
    /// From unchecked coordinates.
    pub fn affine(x: BigUint, y: BigUint) -> Self {
        let z = BigUint::from(1u32);
        Self { x, y, z }
    }

    fn infinity() -> Self {
        Self::affine(1u32.into(), 1u32.into()).with_z(BigUint::ZERO)
    }

    fn with_z(self, z: BigUint) -> Self {
        Self { z, ..self }
    }

    /// Whether it is the neutral element.
    pub fn is_infinity(&self) -> bool {
        self.z == BigUint::ZERO
    }

    /// Whether it is on the curve; only valid for z = 1.
    pub fn on(&self, curve: &Curve) -> bool {
        let Curve { p, a, b, .. } = curve;
        self.x < *p
            && self.y < *p
            && &self.y * &self.y % p == (&self.x * &self.x * &self.x + a * &self.x + b) % p
    }

    /// x and y; `None` at infinity.
    pub fn coordinates(&self, curve: &Curve) -> Option<(BigUint, BigUint)> {
        let p = &curve.p;
        let inverse = self.z.modinv(p)?;
        let square = &inverse * &inverse % p;
        let y = &self.y * &square % p * inverse % p;
        Some((&self.x * square % p, y))
    }

    /// The point added to itself.
    fn double(&self, curve: &Curve) -> Self {
        let p = &curve.p;
        let yy = &self.y * &self.y % p;
        let s = ((&self.x * &yy) << 2) % p;
        let zz = &self.z * &self.z % p;
        let m = (&self.x * &self.x * 3u32 + &curve.a * (&zz * &zz % p)) % p;
        let x = minus(&m * &m, &(&s << 1), p);
        let y = minus(m * minus(s, &x, p), &((&yy * &yy) << 3), p);
        let z = ((&self.y * &self.z) << 1) % p;
        Self { x, y, z }
    }

    /// The sum of two points.
    fn plus(&self, other: &Self, curve: &Curve) -> Self {
        if self.is_infinity() {
            return other.clone();
        }
        if other.is_infinity() {
            return self.clone();
        }
        let p = &curve.p;
        let (zz1, zz2) = (&self.z * &self.z % p, &other.z * &other.z % p);
        let (u1, u2) = (&self.x * &zz2 % p, &other.x * &zz1 % p);
        let s1 = &self.y * &other.z % p * zz2 % p;
        let s2 = &other.y * &self.z % p * zz1 % p;
        let h = minus(u2, &u1, p);
        let r = minus(s2, &s1, p);
        if h == BigUint::ZERO {
            return if r == BigUint::ZERO {
                self.double(curve)
            } else {
                Self::infinity()
            };
        }
        let hh = &h * &h % p;
        let hhh = &hh * &h % p;
        let v = u1 * hh % p;
        let x = minus(&r * &r, &(&hhh + (&v << 1)), p);
        let y = minus(r * minus(v, &x, p), &(s1 * hhh), p);
        let z = &self.z * &other.z % p * h % p;
        Self { x, y, z }
    }

    /// `scalar` times the point.
    pub fn times(&self, curve: &Curve, scalar: &BigUint) -> Self {
        let multiples = small_multiples(self, curve);
        let mut product = Self::infinity();
        for digit in scalar.to_radix_be(16) {
            for _ in 0..4 {
                product = product.double(curve);
            }
            product = product.plus(&multiples[usize::from(digit)], curve);
        }
        product
    }
}

/// 0 to 15 times each of a point's 16th powers, so that a product is a sum without doublings.
pub struct Multiples(Vec<Vec<Point>>);

impl Multiples {
    /// For scalars up to the order of `curve`.
    pub fn of(curve: &Curve, point: &Point) -> Self {
        let mut rows = Vec::new();
        let mut base = point.clone();
        for _ in 0..curve.n.bits().div_ceil(4) {
            let row = small_multiples(&base, curve);
            base = row[15].plus(&base, curve);
            rows.push(row);
        }
        Self(rows)
    }

    /// `scalar` times the point.
    pub fn times(&self, curve: &Curve, scalar: &BigUint) -> Point {
        let digits = scalar.to_radix_le(16);
        let terms = digits.iter().zip(&self.0);
        terms.fold(Point::infinity(), |sum, (digit, row)| {
            sum.plus(&row[usize::from(*digit)], curve)
        })
    }
}

/// 0 to 15 times the point.
fn small_multiples(point: &Point, curve: &Curve) -> Vec<Point> {
    let mut multiples = vec![Point::infinity()];
    for last in 0..15 {
        multiples.push(multiples[last].plus(point, curve));
    }
    multiples
}

/// The difference in the field; both may be as large as products.
fn minus(a: BigUint, b: &BigUint, p: &BigUint) -> BigUint {
    let (a, b) = (a % p, b % p);
    if a >= b { a - b } else { a + p - b }
}
