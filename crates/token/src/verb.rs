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
    /// C_Verify of a MAC by the token: `data` is the 4-byte big-endian length of the MAC, the MAC, the message.
    #[n(4)]
    VerifyMac,
}

impl Verb {
    /// The mechanism flag (and key usage) that this verb needs.
    pub const fn needs(self) -> Uses {
        match self {
            Self::Sign => Uses::SIGN,
            Self::SignRecover => Uses::SIGN_RECOVER,
            Self::Encrypt => Uses::ENCRYPT,
            Self::Decrypt => Uses::DECRYPT,
            Self::VerifyMac => Uses::VERIFY,
        }
    }

    /// The PKCS#11 call that begins it.
    pub const fn begins(self) -> &'static str {
        match self {
            Self::Sign => "C_SignInit",
            Self::SignRecover => "C_SignRecoverInit",
            Self::Encrypt => "C_EncryptInit",
            Self::Decrypt => "C_DecryptInit",
            Self::VerifyMac => "C_VerifyInit",
        }
    }
}
