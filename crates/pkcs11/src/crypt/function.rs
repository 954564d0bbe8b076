//! The functions that a session can have under way, one operation of each.

use hsmux_token::ck::*;
use hsmux_token::{Class, Verb};

/// The function of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// C_Digest.
    Digest,
    /// C_Sign.
    Sign,
    /// C_SignRecover.
    SignRecover,
    /// C_Verify.
    Verify,
    /// C_VerifyRecover.
    VerifyRecover,
    /// C_Encrypt.
    Encrypt,
    /// C_Decrypt.
    Decrypt,
}

/// The requirements of a function for a mechanism and a key.
struct FunctionNeeds {
    flag: CK_FLAGS,
    usage: CK_ATTRIBUTE_TYPE,
    classes: &'static [Class],
    /// The verb of the member's operation; `None` if this process does all of it.
    verb: Option<Verb>,
}

impl Function {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Digest,
        Self::Sign,
        Self::SignRecover,
        Self::Verify,
        Self::VerifyRecover,
        Self::Encrypt,
        Self::Decrypt,
    ];

    #[rustfmt::skip]
    fn needs(self) -> FunctionNeeds {
        const PUBLIC: Class = Class::PUBLIC_KEY;
        const PRIVATE: Class = Class::PRIVATE_KEY;
        const SECRET: Class = Class::SECRET_KEY;
        let (flag, usage, classes, verb): (_, _, &[Class], _) = match self {
            Self::Digest => (CKF_DIGEST, CKA_CLASS, &[], None),
            Self::Sign => (CKF_SIGN, CKA_SIGN, &[PRIVATE, SECRET], Some(Verb::Sign)),
            Self::SignRecover => (CKF_SIGN_RECOVER, CKA_SIGN_RECOVER, &[PRIVATE], Some(Verb::SignRecover)),
            Self::Verify => (CKF_VERIFY, CKA_VERIFY, &[PUBLIC, SECRET], Some(Verb::Verify)),
            Self::VerifyRecover => (CKF_VERIFY_RECOVER, CKA_VERIFY_RECOVER, &[PUBLIC], None),
            Self::Encrypt => (CKF_ENCRYPT, CKA_ENCRYPT, &[PUBLIC, SECRET], Some(Verb::Encrypt)),
            Self::Decrypt => (CKF_DECRYPT, CKA_DECRYPT, &[PRIVATE, SECRET], Some(Verb::Decrypt)),
        };
        FunctionNeeds { flag, usage, classes, verb }
    }

    /// The mechanism's flag.
    pub fn flag(self) -> CK_FLAGS {
        self.needs().flag
    }

    /// The key's attribute.
    pub fn usage(self) -> CK_ATTRIBUTE_TYPE {
        self.needs().usage
    }

    /// The keys that it works with.
    pub fn takes(self, class: Class) -> bool {
        self.needs().classes.contains(&class)
    }

    /// The verb for a private or secret key; `None` if a member is never asked.
    pub fn verb(self) -> Option<Verb> {
        self.needs().verb
    }

    /// The error for input of a length that the mechanism cannot take.
    pub fn length_error(self) -> CK_RV {
        match self {
            Self::Decrypt => CKR_ENCRYPTED_DATA_LEN_RANGE,
            _ => CKR_DATA_LEN_RANGE,
        }
    }
}
