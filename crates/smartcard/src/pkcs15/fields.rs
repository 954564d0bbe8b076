use der::asn1::{BitStringRef, OctetStringRef, Utf8StringRef};
use der::{Decode, Encode};

use super::DescriptionError;
use crate::tlv::{Tlv, TlvError, Tlvs, tlv};

pub const SEQUENCE: u32 = 0x30;
pub const BOOLEAN: u32 = 0x01;
pub const INTEGER: u32 = 0x02;
pub const BIT_STRING: u32 = 0x03;
pub const OCTET_STRING: u32 = 0x04;
pub const OBJECT_IDENTIFIER: u32 = 0x06;
pub const UTF8_STRING: u32 = 0x0C;
/// Attributes of the sub-class: `[0]`.
pub const SUBCLASS: u32 = 0xA0;
/// Attributes of the type: `[1]`.
pub const TYPE: u32 = 0xA1;

/// The fields of a SEQUENCE, taken in their order, of which many are optional.
pub struct Fields<'a>(std::iter::Peekable<Tlvs<'a>>);

impl<'a> Fields<'a> {
    pub fn of(sequence: Tlv<'a>) -> Self {
        Self(sequence.children().peekable())
    }

    /// The next field, if it has this tag.
    pub fn optional(&mut self, tag: u32) -> Result<Option<Tlv<'a>>, TlvError> {
        self.0
            .next_if(|field| field.is_err() || field.is_ok_and(|field| field.tag == tag))
            .transpose()
    }

    /// The next field, which must have this tag.
    pub fn required(&mut self, tag: u32) -> Result<Tlv<'a>, TlvError> {
        self.optional(tag)?.ok_or(TlvError::Missing(tag))
    }

    /// A number; OpenSC up to 0.11.4 wrote bytes over 127 as negative ones.
    pub fn number(&mut self, what: &'static str) -> Result<Option<u32>, DescriptionError> {
        let Some(field) = self.optional(INTEGER)? else {
            return Ok(None);
        };
        let number = i64::from_der(field.raw).map_err(|_| DescriptionError::Value(what))?;
        let number = if number < 0 { number + 256 } else { number };
        let number = u32::try_from(number).map_err(|_| DescriptionError::Value(what))?;
        Ok(Some(number))
    }

    /// The bits of a BIT STRING, the first in the lowest bit.
    pub fn bits(&mut self) -> Result<Option<u32>, TlvError> {
        let Some(field) = self.optional(BIT_STRING)? else {
            return Ok(None);
        };
        // The first byte counts unused bits, about which not every program is right.
        let bytes = field.value.iter().skip(1).take(4);
        let bits = bytes.enumerate().fold(0, |bits, (index, byte)| {
            bits | u32::from(byte.reverse_bits()) << (8 * index)
        });
        Ok(Some(bits))
    }

    pub fn text(&mut self) -> Result<Option<String>, TlvError> {
        let field = self.optional(UTF8_STRING)?;
        Ok(field.map(|field| String::from_utf8_lossy(field.value).into_owned()))
    }

    pub fn bytes(&mut self) -> Result<Option<Vec<u8>>, TlvError> {
        let field = self.optional(OCTET_STRING)?;
        Ok(field.map(|field| field.value.to_vec()))
    }
}

pub fn number(number: u32) -> Vec<u8> {
    encoded(&number)
}

/// A BIT STRING without zeros at its end (X.690, section 11.2.2); the first bit is the lowest.
pub fn bits(bits: u32) -> Vec<u8> {
    let len = 32 - bits.leading_zeros() as usize;
    let bytes = bits.reverse_bits().to_be_bytes();
    let bytes = &bytes[..len.div_ceil(8)];
    let unused = (bytes.len() * 8 - len) as u8;
    BitStringRef::new(unused, bytes).map_or_else(|_| Vec::new(), |bits| encoded(&bits))
}

pub fn text(text: &str) -> Vec<u8> {
    Utf8StringRef::new(text).map_or_else(|_| Vec::new(), |text| encoded(&text))
}

pub fn bytes(bytes: &[u8]) -> Vec<u8> {
    OctetStringRef::new(bytes).map_or_else(|_| Vec::new(), |bytes| encoded(&bytes))
}

pub fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tlv(SEQUENCE, parts)
}

/// DER; only lengths past 256 MB fail, and no description is that long.
fn encoded(value: &impl Encode) -> Vec<u8> {
    value.to_der().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_first() {
        assert_eq!(bits(0), [3, 1, 0]);
        assert_eq!(bits(0b100), [3, 2, 5, 0x20]);
        assert_eq!(bits(1 << 9 | 1), [3, 3, 6, 0x80, 0x40]);
        for flags in [0, 1, 0b100, 0x1FF, 1 << 31] {
            let whole = sequence(&[&bits(flags)]);
            let mut fields = Fields::of(Tlv::first(&whole).unwrap().0);
            assert_eq!(fields.bits(), Ok(Some(flags)));
        }
    }
}
