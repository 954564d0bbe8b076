//! The device key encryption key (DKEK): how keys leave one SmartCard-HSM and enter another.
//!
//! Nothing here needs a card. A [`Dkek`] is the XOR of its [`DkekShare`]s; each share travels in a
//! [`ShareFile`] under a password, which [`custodian`]s may hold n of m; a [`WrappedKey`] is what a card
//! gives out under its DKEK, and a [`WrappedKeyFile`] is that with the key's description and certificate.
//! All three are the formats of OpenSC's `sc-hsm-tool`, byte for byte.

mod blob;
pub mod custodian;
mod key;
mod key_file;
mod material;
mod share_file;

pub use blob::WrappedKey;
#[doc(hidden)]
pub use blob::wrap_clear_text;
pub use key::{CheckValue, Dkek, DkekShare};
pub use key_file::WrappedKeyFile;
pub use material::{Field, KeyMaterial, WrappedKind};
pub use share_file::ShareFile;

/// Errors of shares and wrapped keys.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DkekError {
    /// Not a share file at all.
    #[error("not a DKEK share file: 64 bytes that begin with Salted__ are expected")]
    NotAShareFile,
    /// The padding is wrong after deciphering.
    #[error("the password does not open this DKEK share")]
    WrongPassword,
    /// A custodian's part, or their number, is unusable.
    #[error("password share: {0}")]
    Custodian(String),
    /// Wrapped by a card with another DKEK.
    #[error("wrapped under the DKEK with key check value {wrapped}, but this is {here}")]
    OtherDkek {
        /// The key check value of the wrapped key.
        wrapped: CheckValue,
        /// The key check value of the given DKEK.
        here: CheckValue,
    },
    /// The key check value is right and the MAC is not.
    #[error("the wrapped key is damaged: its MAC does not verify; take another copy of it")]
    Damaged,
    /// The bytes are not what they should be.
    #[error("not a wrapped key: {0}")]
    Malformed(&'static str),
}

/// Random bytes of the operating system.
fn random<const N: usize>() -> zeroize::Zeroizing<[u8; N]> {
    let mut bytes = zeroize::Zeroizing::new([0; N]);
    // Debian's kernel never fails here once it has started.
    getrandom::fill(&mut *bytes).expect("the operating system has random bytes");
    bytes
}
