//! Wrapped-key files of sc-hsm-tool: a key, its description and its certificate.

use super::{DkekError, WrappedKey};
use crate::tlv::{self, Tlv};

const SEQUENCE: u32 = 0x30;
const OCTET_STRING: u32 = 0x04;

/// A key that left a card, with what is needed to use it on another: `30 { 04 key, description, certificate }`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrappedKeyFile {
    /// The key.
    pub key: WrappedKey,
    /// Its PKCS#15 private key description (label, id, usage): the content of its file C4xx.
    pub description: Option<Vec<u8>>,
    /// Its certificate, or the card verifiable request in its place: the content of CExx.
    pub certificate: Option<Vec<u8>>,
}

impl WrappedKeyFile {
    /// Reads a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, DkekError> {
        let first = |bytes, wrong| Tlv::first(bytes).map_err(|_| DkekError::Malformed(wrong));
        let (outer, _) = first(bytes, "the file is not BER-TLV")?;
        if outer.tag != SEQUENCE {
            return Err(DkekError::Malformed("the file is not a sequence (tag 30)"));
        }
        let (key, mut rest) = first(outer.value, "the file has no key in it")?;
        if key.tag != OCTET_STRING {
            return Err(DkekError::Malformed("the file has no key (tag 04) in it"));
        }
        let mut next = || -> Result<_, DkekError> {
            if rest.is_empty() {
                return Ok(None);
            }
            let (value, after) = first(rest, "what follows the key is not BER-TLV")?;
            rest = after;
            Ok(Some(value))
        };
        let (mut description, mut certificate) = (next()?, next()?);
        // sc-hsm-tool leaves out what a key does not have. A certificate alone is told by its tag: that of
        // a card verifiable request, or of an X.509 certificate, whose first value is a sequence of sequences.
        if certificate.is_none() && description.is_some_and(|only| is_certificate(&only)) {
            certificate = description.take();
        }
        Ok(Self {
            key: WrappedKey::parse(key.value)?,
            description: description.map(|value| value.raw.to_vec()),
            certificate: certificate.map(|value| value.raw.to_vec()),
        })
    }

    /// The file.
    pub fn to_der(&self) -> Vec<u8> {
        let key = tlv::tlv(OCTET_STRING, &[self.key.as_bytes()]);
        let description = self.description.as_deref().unwrap_or_default();
        let certificate = self.certificate.as_deref().unwrap_or_default();
        tlv::tlv(SEQUENCE, &[&key, description, certificate])
    }
}

/// TBSCertificate begins with its version (tag A0) or serial number (02); a description's first value is
/// CommonObjectAttributes, which begins with a label (0C).
fn is_certificate(value: &Tlv<'_>) -> bool {
    match value.tag {
        0x67 | 0x7F21 => true,
        SEQUENCE => Tlv::first(value.value)
            .and_then(|(first, _)| Tlv::first(first.value))
            .is_ok_and(|(inner, _)| matches!(inner.tag, 0xA0 | 0x02)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Dkek, DkekShare, KeyMaterial, WrappedKind};
    use super::*;
    use zeroize::Zeroizing;

    fn file(description: Option<&[u8]>, certificate: Option<&[u8]>) -> WrappedKeyFile {
        let values = vec![Zeroizing::new(vec![7; 32])];
        let key = KeyMaterial::new(WrappedKind::Aes, values).unwrap();
        let dkek = Dkek::from_shares([&DkekShare::random()]);
        WrappedKeyFile {
            key: WrappedKey::seal(&key, &[], &dkek).unwrap(),
            description: description.map(<[u8]>::to_vec),
            certificate: certificate.map(<[u8]>::to_vec),
        }
    }

    #[test]
    fn what_a_key_does_not_have_is_left_out() {
        let description = [0x30, 5, 0x30, 3, 0x0C, 1, b'a'];
        let x509 = [0x30, 5, 0x30, 3, 0xA0, 1, 2];
        let request = [0x67, 1, 0];
        for certificate in [None, Some(&x509[..]), Some(&request)] {
            for description in [None, Some(&description[..])] {
                let file = file(description, certificate);
                assert_eq!(WrappedKeyFile::parse(&file.to_der()).unwrap(), file);
            }
        }
    }

    #[test]
    fn cut_files_are_refused() {
        let whole = file(Some(&[0x30, 1, 0]), None).to_der();
        for length in 0..whole.len() {
            assert!(WrappedKeyFile::parse(&whole[..length]).is_err(), "{length}");
        }
        assert!(WrappedKeyFile::parse(&tlv::tlv(0x31, &[&whole])).is_err());
    }
}
