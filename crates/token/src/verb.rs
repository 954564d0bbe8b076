//! The keyed operations: sign and decrypt differ in a word.

use crate::Uses;
use minicbor::{Decode, Encode};

/// What is done with a key and some data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Verb {
    /// C_Sign, also a MAC.
    #[n(0)]
    Sign,
    /// C_SignRecover.
    #[n(1)]
    SignRecover,
    /// C_Encrypt.
    #[n(2)]
    Encrypt,
    /// C_Decrypt.
    #[n(3)]
    Decrypt,
    /// C_Verify by the token, of a MAC or of a signature that only the token can check: `data` is the 4-byte big-endian
    /// length of the signature, the signature, the message.
    #[n(4)]
    Verify,
}

impl Verb {
    /// The mechanism flag (and key usage) that this verb needs.
    pub const fn needs(self) -> Uses {
        match self {
            Self::Sign => Uses::SIGN,
            Self::SignRecover => Uses::SIGN_RECOVER,
            Self::Encrypt => Uses::ENCRYPT,
            Self::Decrypt => Uses::DECRYPT,
            Self::Verify => Uses::VERIFY,
        }
    }

    /// The PKCS#11 call that begins it.
    pub const fn begins(self) -> &'static str {
        match self {
            Self::Sign => "C_SignInit",
            Self::SignRecover => "C_SignRecoverInit",
            Self::Encrypt => "C_EncryptInit",
            Self::Decrypt => "C_DecryptInit",
            Self::Verify => "C_VerifyInit",
        }
    }
}
