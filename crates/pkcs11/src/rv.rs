//! CK_RV as an error: what a call answers when it cannot do what it was asked.

use hsmux_token::{Error, ck::CK_RV};

/// The CK_RV of a call that failed; never CKR_OK.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rv(pub CK_RV);

/// The result of a C_ function.
pub type Result<T = ()> = std::result::Result<T, Rv>;

impl From<Error> for Rv {
    /// A CK_RV says little: with HSMUX_DEBUG set, the sentence goes to standard error.
    fn from(error: Error) -> Self {
        crate::debug::say(&error);
        Self(error.to_rv())
    }
}

impl std::fmt::Debug for Rv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (0x{:08x})", hsmux_token::rv_name(self.0), self.0)
    }
}
