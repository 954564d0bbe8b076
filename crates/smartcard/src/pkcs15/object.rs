use super::fields::{Fields, SEQUENCE, bits, bytes, sequence, text};
use crate::tlv::TlvError;

bitflags::bitflags! {
    /// CommonObjectFlags (PKCS#15 v1.1, section 6.1.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ObjectFlags: u32 {
        /// Needs a login to be seen.
        const PRIVATE = 1;
        /// May be changed.
        const MODIFIABLE = 1 << 1;
    }
}

/// The common beginning of every description: CommonObjectAttributes (PKCS#15 v1.1, section 6.1.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectAttributes {
    /// CKA_LABEL.
    pub label: String,
    /// Access flags; absent flags are written as none.
    pub flags: ObjectFlags,
    /// Which PIN it needs: 1 is the user's, 2 the security officer's; empty if nothing is said.
    pub auth_id: Vec<u8>,
}

impl ObjectAttributes {
    /// An object that only has a name.
    pub fn labelled(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            ..Self::default()
        }
    }

    /// A key: private, modifiable, behind the user's PIN, as OpenSC has it.
    pub fn key(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            flags: ObjectFlags::PRIVATE | ObjectFlags::MODIFIABLE,
            auth_id: vec![1],
        }
    }

    pub(super) fn parse(object: &mut Fields<'_>) -> Result<Self, TlvError> {
        let mut fields = Fields::of(object.required(SEQUENCE)?);
        Ok(Self {
            label: fields.text()?.unwrap_or_default(),
            flags: ObjectFlags::from_bits_retain(fields.bits()?.unwrap_or_default()),
            auth_id: fields.bytes()?.unwrap_or_default(),
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let flags = (!self.flags.is_empty()).then(|| bits(self.flags.bits()));
        let auth_id = (!self.auth_id.is_empty()).then(|| bytes(&self.auth_id));
        let label = (!self.label.is_empty()).then(|| text(&self.label));
        sequence(&[
            &label.unwrap_or_default(),
            &flags.unwrap_or_default(),
            &auth_id.unwrap_or_default(),
        ])
    }
}
