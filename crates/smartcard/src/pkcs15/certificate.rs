use super::fields::{BOOLEAN, Fields, OCTET_STRING, SEQUENCE, TYPE, bytes, sequence};
use super::{DescriptionError, ObjectAttributes};
use crate::tlv::{Tlv, tlv};

/// The description of a certificate that belongs to no key, file C8xx (PKCS#15 v1.1, section 6.6).
///
/// Certificates of keys have none: label and id are those of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateDescription {
    /// Label, flags, PIN.
    pub object: ObjectAttributes,
    /// CKA_ID.
    pub id: Vec<u8>,
    /// A CA's certificate.
    pub authority: bool,
    /// The file identifier of the certificate, as bytes.
    pub path: Vec<u8>,
}

impl CertificateDescription {
    /// Reads the content of a file C8xx.
    pub fn parse(content: &[u8]) -> Result<Self, DescriptionError> {
        let (whole, _) = Tlv::first(content)?;
        // X.509, or sc-hsm-embedded's tags for its other kinds.
        if ![SEQUENCE, 0xA0, 0xA5].contains(&whole.tag) {
            return Err(DescriptionError::Unknown(whole.tag));
        }
        let mut fields = Fields::of(whole);
        let object = ObjectAttributes::parse(&mut fields)?;
        let mut common = Fields::of(fields.required(SEQUENCE)?);
        let id = common.bytes()?.unwrap_or_default();
        let authority = common.optional(BOOLEAN)?;
        let path = match fields.optional(TYPE)? {
            Some(attributes) => {
                let value = Fields::of(attributes).required(SEQUENCE)?;
                match Fields::of(value).optional(SEQUENCE)? {
                    Some(path) => path.child(OCTET_STRING)?.value.to_vec(),
                    None => Vec::new(),
                }
            }
            None => Vec::new(),
        };
        Ok(Self {
            object,
            id,
            authority: authority.is_some_and(|value| value.value != [0]),
            path,
        })
    }

    /// The content for a file C8xx.
    pub fn encode(&self) -> Vec<u8> {
        let authority = self.authority.then(|| tlv(BOOLEAN, &[&[0xFF]]));
        let common = sequence(&[&bytes(&self.id), &authority.unwrap_or_default()]);
        let path = sequence(&[&bytes(&self.path)]);
        let attributes = tlv(TYPE, &[&sequence(&[&path])]);
        sequence(&[&self.object.encode(), &common, &attributes])
    }
}
