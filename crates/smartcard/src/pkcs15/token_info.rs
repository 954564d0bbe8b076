use super::DescriptionError;
use super::fields::{Fields, SEQUENCE, UTF8_STRING, bits, number, sequence};
use crate::tlv::{Tlv, tlv};

/// TokenInfo, file 2F03 (PKCS#15 v1.1, section 6.9), of which a SmartCard-HSM has the label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenInfo {
    /// CKA_LABEL of the token.
    pub label: String,
    /// TokenFlags: bit 2, the card makes random numbers.
    pub flags: u32,
}

/// `[0]`, implicit.
const LABEL: u32 = 0x80;
/// prnGeneration.
const RANDOM: u32 = 1 << 2;

impl TokenInfo {
    /// The content that OpenSC writes for a card with this label.
    pub fn labelled(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            flags: RANDOM,
        }
    }

    /// Reads the content of file 2F03.
    pub fn parse(content: &[u8]) -> Result<Self, DescriptionError> {
        let (whole, _) = Tlv::first(content)?;
        if whole.tag != SEQUENCE {
            return Err(DescriptionError::Unknown(whole.tag));
        }
        let mut fields = Fields::of(whole);
        fields.number("version")?;
        let _serial = fields.bytes()?;
        let _manufacturer = fields.optional(UTF8_STRING)?;
        let label = fields.optional(LABEL)?;
        Ok(Self {
            label: label.map_or_else(String::new, |label| {
                String::from_utf8_lossy(label.value).into_owned()
            }),
            flags: fields.bits()?.unwrap_or_default(),
        })
    }

    /// The content for file 2F03.
    pub fn encode(&self) -> Vec<u8> {
        sequence(&[
            &number(0),
            &tlv(LABEL, &[self.label.as_bytes()]),
            &bits(self.flags),
        ])
    }
}
