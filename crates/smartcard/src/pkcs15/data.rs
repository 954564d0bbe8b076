use super::fields::{
    Fields, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, TYPE, bytes, sequence, text,
};
use super::{DescriptionError, ObjectAttributes};
use crate::tlv::{Tlv, tlv};

/// The description of a data object, file C9xx (PKCS#15 v1.1, section 6.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDescription {
    /// Label, flags (a private object is in a file CDxx, another in CFxx), PIN.
    pub object: ObjectAttributes,
    /// CKA_APPLICATION.
    pub application: String,
    /// The value of CKA_OBJECT_ID, if there is one.
    pub oid: Option<Vec<u8>>,
    /// The file identifier of the data, as bytes.
    pub path: Vec<u8>,
}

impl DataDescription {
    /// Reads the content of a file C9xx.
    pub fn parse(content: &[u8]) -> Result<Self, DescriptionError> {
        let (whole, _) = Tlv::first(content)?;
        if whole.tag != SEQUENCE {
            return Err(DescriptionError::Unknown(whole.tag));
        }
        let mut fields = Fields::of(whole);
        let object = ObjectAttributes::parse(&mut fields)?;
        let mut common = Fields::of(fields.required(SEQUENCE)?);
        let application = common.text()?.unwrap_or_default();
        let oid = common.optional(OBJECT_IDENTIFIER)?;
        let path = match fields.optional(TYPE)? {
            Some(attributes) => {
                let path = Fields::of(attributes).required(SEQUENCE)?;
                path.child(OCTET_STRING)?.value.to_vec()
            }
            None => Vec::new(),
        };
        Ok(Self {
            object,
            application,
            oid: oid.map(|oid| oid.value.to_vec()),
            path,
        })
    }

    /// The content for a file C9xx.
    pub fn encode(&self) -> Vec<u8> {
        let application = (!self.application.is_empty()).then(|| text(&self.application));
        let oid = self.oid.as_ref();
        let oid = oid.map(|oid| tlv(OBJECT_IDENTIFIER, &[oid]));
        let common = sequence(&[&application.unwrap_or_default(), &oid.unwrap_or_default()]);
        let attributes = tlv(TYPE, &[&sequence(&[&bytes(&self.path)])]);
        sequence(&[&self.object.encode(), &common, &attributes])
    }
}
