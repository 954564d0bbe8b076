//! The content of a wrapped key.

use std::fmt;

use zeroize::Zeroizing;

use super::DkekError;

/// The type byte of a wrapped key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrappedKind {
    /// RSA with its private exponent.
    Rsa = 5,
    /// RSA with primes and their exponents.
    RsaCrt = 6,
    /// EC with its domain parameters.
    Ec = 12,
    /// AES.
    Aes = 15,
}

/// The parts of a key, in the words of their standards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// RSA: the modulus n.
    Modulus,
    /// RSA: the public exponent e.
    PublicExponent,
    /// RSA: the private exponent d.
    PrivateExponent,
    /// RSA: the prime p.
    PrimeP,
    /// RSA: the prime q.
    PrimeQ,
    /// RSA: d mod (p - 1).
    ExponentP,
    /// RSA: d mod (q - 1).
    ExponentQ,
    /// RSA: the inverse of q mod p.
    Coefficient,
    /// EC: the coefficient A of the curve. Some emulators leave it empty.
    CurveA,
    /// EC: the coefficient B of the curve.
    CurveB,
    /// EC: the prime of the field.
    FieldPrime,
    /// EC: the order of the generator.
    Order,
    /// EC: the generator, uncompressed.
    Generator,
    /// EC: the secret d.
    Secret,
    /// EC: the public point, uncompressed.
    PublicPoint,
    /// AES: the key.
    Value,
}

impl WrappedKind {
    /// The fields in their order.
    pub fn fields(self) -> &'static [Field] {
        use Field as F;
        match self {
            Self::Rsa => &[F::PrivateExponent, F::Modulus, F::PublicExponent],
            Self::RsaCrt => &[
                F::ExponentP,
                F::ExponentQ,
                F::PrimeP,
                F::Coefficient,
                F::PrimeQ,
                F::Modulus,
                F::PublicExponent,
            ],
            Self::Ec => &[
                F::CurveA,
                F::CurveB,
                F::FieldPrime,
                F::Order,
                F::Generator,
                F::Secret,
                F::PublicPoint,
            ],
            Self::Aes => &[F::Value],
        }
    }

    /// The default algorithm that a wrapped key names: contents octets of an object identifier.
    ///
    /// id-TA-RSA-v1-5-SHA-256 and id-TA-ECDSA-SHA-256 (BSI TR-03110, part 3), 2.16.840.1.101.3.4.1 (NIST, AES).
    pub(super) fn default_algorithm(self) -> &'static [u8] {
        match self {
            Self::Rsa | Self::RsaCrt => &[4, 0, 0x7F, 0, 7, 2, 2, 2, 1, 2],
            Self::Ec => &[4, 0, 0x7F, 0, 7, 2, 2, 2, 2, 3],
            Self::Aes => &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1],
        }
    }

    /// The field whose length is the key's size.
    fn sized_by(self) -> Field {
        match self {
            Self::Rsa | Self::RsaCrt => Field::Modulus,
            Self::Ec => Field::FieldPrime,
            Self::Aes => Field::Value,
        }
    }
}

impl TryFrom<u8> for WrappedKind {
    type Error = DkekError;

    fn try_from(byte: u8) -> Result<Self, DkekError> {
        let all = [Self::Rsa, Self::RsaCrt, Self::Ec, Self::Aes];
        let found = all.into_iter().find(|kind| *kind as u8 == byte);
        found.ok_or(DkekError::Malformed("its type is none of RSA, EC and AES"))
    }
}

/// A key in the clear, for as short as can be.
#[derive(Clone)]
pub struct KeyMaterial {
    kind: WrappedKind,
    values: Vec<Zeroizing<Vec<u8>>>,
}

impl KeyMaterial {
    /// A key of these values, in the order of [`WrappedKind::fields`].
    pub fn new(kind: WrappedKind, values: Vec<Zeroizing<Vec<u8>>>) -> Result<Self, DkekError> {
        if values.len() != kind.fields().len() {
            return Err(DkekError::Malformed("a field is missing"));
        }
        if values
            .iter()
            .any(|value| u16::try_from(value.len()).is_err())
        {
            return Err(DkekError::Malformed("a field is too long"));
        }
        Ok(Self { kind, values })
    }

    /// The type of the key.
    pub fn kind(&self) -> WrappedKind {
        self.kind
    }

    /// A part of it; `None` where keys of this kind have no such part.
    pub fn get(&self, field: Field) -> Option<&[u8]> {
        let at = self
            .kind
            .fields()
            .iter()
            .position(|known| *known == field)?;
        self.values.get(at).map(|value| value.as_slice())
    }

    /// The size in the format of the blob: bits, but bytes for AES.
    fn size(&self) -> u16 {
        let length = self.get(self.kind.sized_by()).map_or(0, <[u8]>::len) as u16;
        match self.kind {
            WrappedKind::Aes => length,
            _ => length.wrapping_mul(8),
        }
    }

    /// Size and fields, each field with its length; an AES key without, for the size is its length.
    pub(super) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let length = self
            .values
            .iter()
            .map(|value| value.len() + 2)
            .sum::<usize>();
        // Its whole room at once: a vector that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(2 + length));
        bytes.extend_from_slice(&self.size().to_be_bytes());
        for value in &self.values {
            if self.kind != WrappedKind::Aes {
                bytes.extend_from_slice(&(value.len() as u16).to_be_bytes());
            }
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// The reverse; what follows the last field is padding.
    pub(super) fn decode(kind: WrappedKind, bytes: &[u8]) -> Result<Self, DkekError> {
        let cut = DkekError::Malformed("it ends in the middle of a field");
        let mut rest = bytes;
        // An AES key's size in bytes is the length of its only field.
        if kind != WrappedKind::Aes {
            rest = rest.get(2..).ok_or_else(|| cut.clone())?;
        }
        let mut values = Vec::new();
        for _ in kind.fields() {
            let (value, after) = length_prefixed(rest).ok_or_else(|| cut.clone())?;
            values.push(Zeroizing::new(value.to_vec()));
            rest = after;
        }
        Self::new(kind, values)
    }
}

/// A value with its length in two bytes before it, and what follows.
pub(super) fn length_prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyMaterial({:?}, secret)", self.kind)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind() -> impl Strategy<Value = WrappedKind> {
        use WrappedKind::{Aes, Ec, Rsa, RsaCrt};
        prop::sample::select(vec![Rsa, RsaCrt, Ec, Aes])
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        /// Any owner of the DKEK may have made the content behind a MAC.
        #[test]
        fn anything_is_read_or_refused(
            kind in kind(),
            fields in prop::collection::vec((0..24_u16, prop::collection::vec(any::<u8>(), 0..24)), 0..10),
        ) {
            let field = |(length, value): &(u16, Vec<u8>)| [&length.to_be_bytes()[..], value].concat();
            let bytes: Vec<u8> = fields.iter().flat_map(field).collect();
            if let Ok(key) = KeyMaterial::decode(kind, &bytes) {
                let again = KeyMaterial::decode(kind, &key.encode()).unwrap();
                for field in kind.fields() {
                    prop_assert_eq!(again.get(*field), key.get(*field));
                }
            }
        }

        #[test]
        fn lengths_that_fit_are_kept(
            kind in kind(),
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..24), 8),
        ) {
            let values = values.into_iter().take(kind.fields().len()).map(Zeroizing::new).collect();
            let key = KeyMaterial::new(kind, values).unwrap();
            let again = KeyMaterial::decode(kind, &key.encode()).unwrap();
            for field in kind.fields() {
                prop_assert_eq!(again.get(*field), key.get(*field));
            }
        }
    }
}
