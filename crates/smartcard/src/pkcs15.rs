//! Descriptions of keys, certificates and data, and of the card itself (PKCS#15 v1.1; ISO/IEC 7816-15), as
//! OpenSC and sc-hsm-embedded write them to the files C4xx, C8xx, C9xx and 2F03.
//!
//! Reading is lenient: what is not known, or not there, is passed over; writing is DER.

mod certificate;
mod data;
mod fields;
mod key;
mod object;
mod token_info;

pub use certificate::CertificateDescription;
pub use data::DataDescription;
pub use key::{KeyAccess, KeyDescription, KeyFamily, KeyUsage};
pub use object::{ObjectAttributes, ObjectFlags};
pub use token_info::TokenInfo;

use crate::tlv::TlvError;

/// A description that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// Not even BER-TLV, or without a part that all have.
    #[error("not a PKCS#15 description: {0}")]
    Form(#[from] TlvError),
    /// A value that is not of its type.
    #[error("a PKCS#15 description whose {0} cannot be read")]
    Value(&'static str),
    /// Not the tag of any key, certificate or data object that is known.
    #[error("a PKCS#15 description of the unknown type {0:X}")]
    Unknown(u32),
}
