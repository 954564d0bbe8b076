use super::fields::{
    BOOLEAN, Fields, INTEGER, SEQUENCE, SUBCLASS, TYPE, bits, bytes, number, sequence,
};
use super::{DescriptionError, ObjectAttributes};
use crate::file::KeyReference;
use crate::tlv::{Tlv, tlv};

bitflags::bitflags! {
    /// KeyUsageFlags (PKCS#15 v1.1, section 6.1.4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct KeyUsage: u32 {
        /// CKA_ENCRYPT.
        const ENCRYPT = 1;
        /// CKA_DECRYPT.
        const DECRYPT = 1 << 1;
        /// CKA_SIGN.
        const SIGN = 1 << 2;
        /// CKA_SIGN_RECOVER.
        const SIGN_RECOVER = 1 << 3;
        /// CKA_WRAP.
        const WRAP = 1 << 4;
        /// CKA_UNWRAP.
        const UNWRAP = 1 << 5;
        /// CKA_VERIFY.
        const VERIFY = 1 << 6;
        /// CKA_VERIFY_RECOVER.
        const VERIFY_RECOVER = 1 << 7;
        /// CKA_DERIVE.
        const DERIVE = 1 << 8;
        /// For signatures that cannot be denied.
        const NON_REPUDIATION = 1 << 9;
    }

    /// KeyAccessFlags (PKCS#15 v1.1, section 6.1.4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct KeyAccess: u32 {
        /// CKA_SENSITIVE.
        const SENSITIVE = 1;
        /// CKA_EXTRACTABLE.
        const EXTRACTABLE = 1 << 1;
        /// CKA_ALWAYS_SENSITIVE.
        const ALWAYS_SENSITIVE = 1 << 2;
        /// CKA_NEVER_EXTRACTABLE.
        const NEVER_EXTRACTABLE = 1 << 3;
        /// CKA_LOCAL: made on the card.
        const LOCAL = 1 << 4;
    }
}

/// The family of a key, by the tag of its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyFamily {
    /// `30`: privateRSAKey.
    Rsa = 0x30,
    /// `A0`: privateECKey.
    Ec = 0xA0,
    /// `A8`: sc-hsm-embedded's for AES keys.
    Aes = 0xA8,
}

/// The description of a private or secret key, file C4xx (PKCS#15 v1.1, sections 6.3 and 6.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDescription {
    /// RSA, EC or AES.
    pub family: KeyFamily,
    /// Label, flags, PIN.
    pub object: ObjectAttributes,
    /// CKA_ID.
    pub id: Vec<u8>,
    /// The allowed uses.
    pub usage: KeyUsage,
    /// Its origin and its extractability.
    pub access: KeyAccess,
    /// The key's number, where the description says it; the number of the file counts.
    pub key_reference: Option<u8>,
    /// Size of the modulus, of the field, or of the secret key, in bits.
    pub bits: Option<u32>,
    /// The content of subClassAttributes of a private key: the subject's name.
    pub subject: Option<Vec<u8>>,
    /// The content of the EC domain, where the description has one: an OID.
    pub ec_domain: Option<Vec<u8>>,
}

impl KeyDescription {
    /// For a key that was made on the card or came to it by the DKEK.
    pub fn new(
        family: KeyFamily,
        key: KeyReference,
        label: &str,
        id: &[u8],
        usage: KeyUsage,
        bits: u32,
    ) -> Self {
        Self {
            family,
            object: ObjectAttributes::key(label),
            id: id.to_vec(),
            usage,
            access: KeyAccess::SENSITIVE
                | KeyAccess::ALWAYS_SENSITIVE
                | KeyAccess::NEVER_EXTRACTABLE
                | KeyAccess::LOCAL,
            key_reference: Some(key.0),
            bits: Some(bits),
            subject: None,
            ec_domain: None,
        }
    }

    /// Reads the content of a file C4xx.
    pub fn parse(bytes: &[u8]) -> Result<Self, DescriptionError> {
        let (whole, _) = Tlv::first(bytes)?;
        let family = match whole.tag {
            0x30 => KeyFamily::Rsa,
            0xA0 => KeyFamily::Ec,
            0xA8 => KeyFamily::Aes,
            other => return Err(DescriptionError::Unknown(other)),
        };
        let mut fields = Fields::of(whole);
        let object = ObjectAttributes::parse(&mut fields)?;
        let mut common = Fields::of(fields.required(SEQUENCE)?);
        let id = common.bytes()?.unwrap_or_default();
        let usage = KeyUsage::from_bits_retain(common.bits()?.unwrap_or_default());
        // native, which is true on a card.
        common.optional(BOOLEAN)?;
        let access = KeyAccess::from_bits_retain(common.bits()?.unwrap_or_default());
        let key_reference = common.number("key reference")?;
        let mut description = Self {
            family,
            object,
            id,
            usage,
            access,
            key_reference: key_reference.and_then(|number| u8::try_from(number).ok()),
            bits: None,
            subject: None,
            ec_domain: None,
        };
        let subclass = fields.optional(SUBCLASS)?;
        if family == KeyFamily::Aes {
            description.bits = subclass.map(secret_key_bits).transpose()?.flatten();
        } else {
            description.subject = subclass.map(|subclass| subclass.value.to_vec());
            if let Some(attributes) = fields.optional(TYPE)? {
                description.read_private_key_attributes(attributes)?;
            }
        }
        Ok(description)
    }

    /// PrivateRSAKeyAttributes and PrivateECKeyAttributes: path, size, key info, and with an EC key its domain.
    fn read_private_key_attributes(&mut self, attributes: Tlv<'_>) -> Result<(), DescriptionError> {
        let mut fields = Fields::of(Fields::of(attributes).required(SEQUENCE)?);
        fields.optional(SEQUENCE)?;
        self.bits = fields.number("key size")?;
        if self.family == KeyFamily::Ec {
            fields.optional(INTEGER)?;
            self.ec_domain = fields
                .optional(SEQUENCE)?
                .map(|domain| domain.value.to_vec());
            // OpenSCDP counts whole bytes of P-521.
            self.bits = self.bits.map(|bits| if bits == 528 { 521 } else { bits });
        }
        Ok(())
    }

    /// The content for a file C4xx.
    pub fn encode(&self) -> Vec<u8> {
        let access = (!self.access.is_empty()).then(|| bits(self.access.bits()));
        let reference = self.key_reference.map(|key| number(key.into()));
        let common = sequence(&[
            &bytes(&self.id),
            &bits(self.usage.bits()),
            &access.unwrap_or_default(),
            &reference.unwrap_or_default(),
        ]);
        let size = self.bits.map(number).unwrap_or_default();
        let particular = if self.family == KeyFamily::Aes {
            tlv(SUBCLASS, &[&sequence(&[&size])])
        } else {
            let subject = self.subject.as_ref();
            let subject = subject.map(|subject| tlv(SUBCLASS, &[subject]));
            let domain = self.ec_domain.as_ref();
            let domain = domain.map(|domain| sequence(&[domain]));
            let no_path = sequence(&[&bytes(&[])]);
            let attributes = sequence(&[&no_path, &size, &domain.unwrap_or_default()]);
            [subject.unwrap_or_default(), tlv(TYPE, &[&attributes])].concat()
        };
        tlv(
            self.family as u32,
            &[&self.object.encode(), &common, &particular],
        )
    }
}

/// CommonSecretKeyAttributes: the size, which older programs did not put into a SEQUENCE.
fn secret_key_bits(attributes: Tlv<'_>) -> Result<Option<u32>, DescriptionError> {
    let mut fields = Fields::of(attributes);
    let mut inner = match fields.optional(SEQUENCE)? {
        Some(sequence) => Fields::of(sequence),
        None => fields,
    };
    inner.number("key size")
}
