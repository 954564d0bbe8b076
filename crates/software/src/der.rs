//! The little DER that the encodings of keys need beside the crates that know them.

use der::{Decode, Encode, Header, Reader, SliceReader, Tag, TagNumber, Tagged};

/// One value with its tag; `parts` are its content, one after the other.
pub fn tlv(tag: Tag, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    // Only a length past 256 MB fails, and no key or certificate request is that long.
    der::asn1::Any::new(tag, content)
        .and_then(|any| any.to_der())
        .unwrap_or_default()
}

/// `[number]`, constructed, context-specific.
pub fn context(number: u32) -> Tag {
    Tag::ContextSpecific {
        number: TagNumber(number),
        constructed: true,
    }
}

/// The content of a value with this tag that fills `der` wholly.
pub fn content(der: &[u8], tag: Tag) -> Option<&[u8]> {
    let any = der::asn1::AnyRef::from_der(der).ok()?;
    (any.tag() == tag).then(|| any.value())
}

/// The DER of the SubjectPublicKeyInfo of an X.509 certificate (RFC 5280, section 4.1).
///
/// Only the fields before it are read: a certificate with an odd extension or serial number still gives its key.
pub fn spki_of_certificate(certificate: &[u8]) -> Option<&[u8]> {
    let certificate = content_of_first(certificate)?;
    let tbs = content_of_first(certificate)?;
    let mut reader = SliceReader::new(tbs).ok()?;
    if reader.peek_byte()? == VERSION {
        element(&mut reader)?;
    }
    for _serial_signature_issuer_validity_subject in 0..5 {
        element(&mut reader)?;
    }
    element(&mut reader)
}

/// `[0] EXPLICIT Version`.
const VERSION: u8 = 0xa0;

/// The next value, with its header.
fn element<'a>(reader: &mut SliceReader<'a>) -> Option<&'a [u8]> {
    reader.tlv_bytes().ok()
}

/// The content of the first value, a SEQUENCE; what follows it is not looked at.
fn content_of_first(der: &[u8]) -> Option<&[u8]> {
    let mut reader = SliceReader::new(der).ok()?;
    let header = Header::decode(&mut reader).ok()?;
    if header.tag() != Tag::Sequence {
        return None;
    }
    reader.read_slice(header.length()).ok()
}
