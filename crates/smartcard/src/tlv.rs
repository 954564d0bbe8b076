//! BER-TLV (ISO/IEC 7816-4, section 5.2.2): answers of cards, read without a copy, and written.
//!
//! Existing crates refuse what cards do (lengths that are not minimal, values of the wrong kind inside a constructed
//! tag), or read recursively, as deep as a card likes. Here a level is read on demand: an answer costs no more than
//! its length.

/// One value with its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// The tag in its written form, 1 to 4 bytes: `0x42`, `0x7F21`.
    pub tag: u32,
    /// The content.
    pub value: &'a [u8],
    /// The whole, with tag and length.
    pub raw: &'a [u8],
}

/// Bytes that are not BER-TLV.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TlvError {
    /// The value, its length or its tag goes on after the end.
    #[error("BER-TLV that ends in the middle of a value")]
    Truncated,
    /// A tag of more than four bytes.
    #[error("BER-TLV with a tag of more than 4 bytes")]
    LongTag,
    /// Indefinite, or of more than four bytes.
    #[error("BER-TLV with a length that no card uses")]
    BadLength,
    /// A value that must be there is not.
    #[error("BER-TLV without the tag {0:X}")]
    Missing(u32),
}

impl<'a> Tlv<'a> {
    /// The first value of `bytes`, and what follows it.
    pub fn first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), TlvError> {
        let (tag, rest) = read_tag(bytes)?;
        let (len, rest) = read_length(rest)?;
        let (value, rest) = rest.split_at_checked(len).ok_or(TlvError::Truncated)?;
        let raw = &bytes[..bytes.len() - rest.len()];
        Ok((Self { tag, value, raw }, rest))
    }

    /// The values inside, if this is constructed; nothing checks that it says so.
    pub fn children(&self) -> Tlvs<'a> {
        Tlvs(self.value)
    }

    /// The first value inside with this tag.
    pub fn child(&self, tag: u32) -> Result<Self, TlvError> {
        find(self.value, tag)
    }
}

/// The first value with this tag in a row of values.
pub fn find(bytes: &[u8], tag: u32) -> Result<Tlv<'_>, TlvError> {
    for tlv in Tlvs(bytes) {
        let tlv = tlv?;
        if tlv.tag == tag {
            return Ok(tlv);
        }
    }
    Err(TlvError::Missing(tag))
}

/// The consecutive values in `bytes`; ends after the first error.
pub fn values(bytes: &[u8]) -> Tlvs<'_> {
    Tlvs(bytes)
}

/// Iterator of the values in a row.
#[derive(Clone, Debug)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, TlvError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let first = Tlv::first(self.0);
        self.0 = first.map_or(&[], |(_, rest)| rest);
        Some(first.map(|(tlv, _)| tlv))
    }
}

/// A value with its tag; `parts` are its content, one after the other.
///
/// The tag is in its written form: `0x42`, `0x7F21`.
pub fn tlv(tag: u32, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(4 + 5 + len);
    bytes.extend_from_slice(significant(&tag.to_be_bytes()));
    if len < 0x80 {
        bytes.push(len as u8);
    } else {
        let len = len.to_be_bytes();
        let len = significant(&len);
        bytes.push(0x80 | len.len() as u8);
        bytes.extend_from_slice(len);
    }
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Without leading zeros, but at least one byte.
fn significant(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros.min(bytes.len() - 1)..]
}

fn read_tag(bytes: &[u8]) -> Result<(u32, &[u8]), TlvError> {
    let (&first, mut rest) = bytes.split_first().ok_or(TlvError::Truncated)?;
    let mut tag = u32::from(first);
    // Five ones: the number goes on in bytes of which all but the last have the highest bit set.
    let mut more = first & 0x1F == 0x1F;
    while more {
        let (&next, after) = rest.split_first().ok_or(TlvError::Truncated)?;
        if tag > 0x00FF_FFFF {
            return Err(TlvError::LongTag);
        }
        tag = tag << 8 | u32::from(next);
        more = next & 0x80 != 0;
        rest = after;
    }
    Ok((tag, rest))
}

fn read_length(bytes: &[u8]) -> Result<(usize, &[u8]), TlvError> {
    let (&first, rest) = bytes.split_first().ok_or(TlvError::Truncated)?;
    match first {
        0..=0x7F => Ok((usize::from(first), rest)),
        0x81..=0x84 => {
            let (len, rest) = rest
                .split_at_checked(usize::from(first & 0x7F))
                .ok_or(TlvError::Truncated)?;
            let len = len
                .iter()
                .fold(0, |len, byte| len << 8 | usize::from(*byte));
            Ok((len, rest))
        }
        _ => Err(TlvError::BadLength),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructed_values_with_long_tags_and_lengths() {
        let body = tlv(
            0x7F4E,
            &[&tlv(0x5F29, &[&[0]]), &tlv(0x42, &[b"UTCA00001"])],
        );
        let whole = tlv(0x7F21, &[&body, &tlv(0x5F37, &[&[7; 300]])]);
        assert_eq!(whole[..2], [0x7F, 0x21]);
        let (outer, rest) = Tlv::first(&whole).unwrap();
        assert!(rest.is_empty());
        let body = outer.child(0x7F4E).unwrap();
        assert_eq!(body.child(0x42).unwrap().value, b"UTCA00001");
        let signature = outer.child(0x5F37).unwrap();
        assert_eq!(signature.value, [7; 300]);
        assert_eq!(signature.raw[..5], [0x5F, 0x37, 0x82, 1, 44]);
        assert_eq!(outer.child(0x99), Err(TlvError::Missing(0x99)));
        assert_eq!(outer.children().count(), 2);
    }

    #[test]
    fn what_is_not_tlv_is_an_error() {
        for (bytes, error) in [
            (&[][..], TlvError::Truncated),
            (&[0x42], TlvError::Truncated),
            (&[0x42, 2, 1], TlvError::Truncated),
            (&[0x42, 0x82, 1], TlvError::Truncated),
            (&[0x42, 0x84, 0xFF, 0xFF, 0xFF, 0xFF], TlvError::Truncated),
            (&[0x42, 0x80, 0, 0], TlvError::BadLength),
            (&[0x42, 0x85, 0, 0, 0, 0, 0], TlvError::BadLength),
            (&[0x5F], TlvError::Truncated),
            (&[0x5F, 0xFF, 0xFF, 0xFF, 0xFF, 1], TlvError::LongTag),
        ] {
            assert_eq!(Tlv::first(bytes).unwrap_err(), error, "{bytes:02X?}");
        }
    }
}
