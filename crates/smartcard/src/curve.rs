//! The elliptic curves of a SmartCard-HSM, with their domain parameters: the card is told the numbers,
//! not a name (TR-03110-3, appendix D.3.3).

use der::Encode;
use der::asn1::ObjectIdentifier;

mod table;

/// A curve over a prime field, cofactor 1. Numbers are as long as the field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Curve {
    /// The name that people use: `P-256`, `brainpoolP256r1`.
    pub name: &'static str,
    /// SEC's name for a NIST curve (`secp256r1`), or nothing.
    pub alias: &'static str,
    /// The identifier that X.509 and PKCS#11 use.
    pub oid: ObjectIdentifier,
    /// Size of the field.
    pub bits: usize,
    /// p, the size of the field.
    pub prime: &'static [u8],
    /// a of y² = x³ + ax + b.
    pub a: &'static [u8],
    /// b of y² = x³ + ax + b.
    pub b: &'static [u8],
    /// The generator: 04, x, y.
    pub generator: &'static [u8],
    /// Order of the generator.
    pub order: &'static [u8],
}

impl Curve {
    /// By its name or alias: `P-256`, `secp256r1`.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL
            .iter()
            .find(|curve| curve.name == name || (!name.is_empty() && curve.alias == name))
    }

    /// By CKA_EC_PARAMS: the DER of an OID.
    pub fn by_params(params: &[u8]) -> Option<&'static Self> {
        Self::ALL.iter().find(|curve| curve.params() == params)
    }

    /// By its numbers, in any width: cards write leading zeros or leave them.
    pub fn by_numbers(prime: &[u8], a: &[u8], b: &[u8]) -> Option<&'static Self> {
        let same = |ours, theirs| without_zeros(ours) == without_zeros(theirs);
        Self::ALL
            .iter()
            .find(|curve| same(curve.prime, prime) && same(curve.a, a) && same(curve.b, b))
    }

    /// CKA_EC_PARAMS: the DER of the OID.
    pub fn params(&self) -> Vec<u8> {
        self.oid.to_der().unwrap_or_default()
    }

    /// Bytes of a coordinate.
    pub const fn field_len(&self) -> usize {
        self.bits.div_ceil(8)
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

impl std::fmt::Debug for Curve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_is_found_by_name_identifier_and_numbers() {
        for curve in Curve::ALL {
            assert_eq!(Curve::by_name(curve.name), Some(curve));
            assert_eq!(Curve::by_params(&curve.params()), Some(curve));
            let prime = [&[0], curve.prime].concat();
            assert_eq!(Curve::by_numbers(&prime, curve.a, curve.b), Some(curve));
            assert_eq!(curve.prime.len(), curve.field_len(), "{curve:?}");
            assert_eq!(curve.generator.len(), 1 + 2 * curve.field_len());
        }
        assert_eq!(Curve::by_name("secp256r1"), Some(&Curve::SECP256R1));
        assert_eq!(Curve::by_name(""), None);
    }
}
