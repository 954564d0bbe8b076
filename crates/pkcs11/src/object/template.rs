//! What a template may say.

use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class};

use crate::rv::{Result, Rv};

const FLAGS: &[CK_ATTRIBUTE_TYPE] = &[
    CKA_TOKEN,
    CKA_PRIVATE,
    CKA_TRUSTED,
    CKA_SENSITIVE,
    CKA_ENCRYPT,
    CKA_DECRYPT,
    CKA_WRAP,
    CKA_UNWRAP,
    CKA_SIGN,
    CKA_SIGN_RECOVER,
    CKA_VERIFY,
    CKA_VERIFY_RECOVER,
    CKA_DERIVE,
    CKA_EXTRACTABLE,
    CKA_LOCAL,
    CKA_NEVER_EXTRACTABLE,
    CKA_ALWAYS_SENSITIVE,
    CKA_MODIFIABLE,
    CKA_COPYABLE,
    CKA_DESTROYABLE,
    CKA_ALWAYS_AUTHENTICATE,
    CKA_WRAP_WITH_TRUSTED,
];

const NUMBERS: &[CK_ATTRIBUTE_TYPE] = &[
    CKA_CLASS,
    CKA_CERTIFICATE_TYPE,
    CKA_CERTIFICATE_CATEGORY,
    CKA_KEY_TYPE,
    CKA_MODULUS_BITS,
    CKA_PRIME_BITS,
    CKA_VALUE_LEN,
    CKA_KEY_GEN_MECHANISM,
];

/// Refuses flags and numbers of a wrong width, and an attribute that stands twice.
///
/// What is meant by either is not for every layer below to guess: CKA_TOKEN decides who may do it.
pub fn check(template: &Attributes) -> Result {
    for (at, attribute) in template.0.iter().enumerate() {
        let len = attribute.value.len();
        if FLAGS.contains(&attribute.kind) && len != 1
            || NUMBERS.contains(&attribute.kind) && len != size_of::<CK_ULONG>()
        {
            return Err(Rv(CKR_ATTRIBUTE_VALUE_INVALID));
        }
        let mut before = template.0[..at].iter();
        if before.any(|other| other.kind == attribute.kind) {
            return Err(Rv(CKR_TEMPLATE_INCONSISTENT));
        }
    }
    Ok(())
}

/// CKA_TOKEN of an object to be made; a session object where nothing is said.
pub fn is_token(template: &Attributes) -> bool {
    template.flag(CKA_TOKEN) == Some(true)
}

/// CKA_PRIVATE of an object; keys with a secret are private where nothing is said.
pub fn is_private(class: Class, template: &Attributes) -> bool {
    template
        .flag(CKA_PRIVATE)
        .unwrap_or(matches!(class, Class::PRIVATE_KEY | Class::SECRET_KEY))
}
