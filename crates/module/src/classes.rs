//! Which attributes the objects of each class may have.

use hsmux_token::Class;
use hsmux_token::ck::*;

/// Of every object (PKCS#11 3.0, section 4.4).
pub(crate) const STORAGE: &[u64] = &[
    CKA_CLASS,
    CKA_TOKEN,
    CKA_PRIVATE,
    CKA_MODIFIABLE,
    CKA_COPYABLE,
    CKA_DESTROYABLE,
    CKA_LABEL,
];

/// What may be known of an object (PKCS#11 3.0, sections 4.4 to 4.10, and the key types of
/// PKCS#11 mechanisms 3.0, section 2). Absent ones are left out by the token.
pub(crate) fn attributes_of(class: Class) -> &'static [u64] {
    match class {
        Class::DATA => &[CKA_APPLICATION, CKA_OBJECT_ID, CKA_VALUE],
        Class::CERTIFICATE => &[
            CKA_CERTIFICATE_TYPE,
            CKA_TRUSTED,
            CKA_CERTIFICATE_CATEGORY,
            CKA_CHECK_VALUE,
            CKA_START_DATE,
            CKA_END_DATE,
            CKA_PUBLIC_KEY_INFO,
            CKA_SUBJECT,
            CKA_ID,
            CKA_ISSUER,
            CKA_SERIAL_NUMBER,
            CKA_VALUE,
            CKA_URL,
            CKA_HASH_OF_SUBJECT_PUBLIC_KEY,
            CKA_HASH_OF_ISSUER_PUBLIC_KEY,
        ],
        Class::PUBLIC_KEY => &[
            CKA_KEY_TYPE,
            CKA_ID,
            CKA_START_DATE,
            CKA_END_DATE,
            CKA_DERIVE,
            CKA_LOCAL,
            CKA_KEY_GEN_MECHANISM,
            CKA_ALLOWED_MECHANISMS,
            CKA_SUBJECT,
            CKA_ENCRYPT,
            CKA_VERIFY,
            CKA_VERIFY_RECOVER,
            CKA_WRAP,
            CKA_TRUSTED,
            CKA_PUBLIC_KEY_INFO,
            CKA_MODULUS,
            CKA_MODULUS_BITS,
            CKA_PUBLIC_EXPONENT,
            CKA_EC_PARAMS,
            CKA_EC_POINT,
            CKA_PRIME,
            CKA_SUBPRIME,
            CKA_BASE,
            CKA_VALUE,
        ],
        Class::PRIVATE_KEY => &[
            CKA_KEY_TYPE,
            CKA_ID,
            CKA_START_DATE,
            CKA_END_DATE,
            CKA_DERIVE,
            CKA_LOCAL,
            CKA_KEY_GEN_MECHANISM,
            CKA_ALLOWED_MECHANISMS,
            CKA_SUBJECT,
            CKA_SENSITIVE,
            CKA_DECRYPT,
            CKA_SIGN,
            CKA_SIGN_RECOVER,
            CKA_UNWRAP,
            CKA_EXTRACTABLE,
            CKA_ALWAYS_SENSITIVE,
            CKA_NEVER_EXTRACTABLE,
            CKA_WRAP_WITH_TRUSTED,
            CKA_ALWAYS_AUTHENTICATE,
            CKA_PUBLIC_KEY_INFO,
            CKA_MODULUS,
            CKA_PUBLIC_EXPONENT,
            CKA_EC_PARAMS,
        ],
        Class::SECRET_KEY => &[
            CKA_KEY_TYPE,
            CKA_ID,
            CKA_START_DATE,
            CKA_END_DATE,
            CKA_DERIVE,
            CKA_LOCAL,
            CKA_KEY_GEN_MECHANISM,
            CKA_ALLOWED_MECHANISMS,
            CKA_SENSITIVE,
            CKA_ENCRYPT,
            CKA_DECRYPT,
            CKA_SIGN,
            CKA_VERIFY,
            CKA_WRAP,
            CKA_UNWRAP,
            CKA_EXTRACTABLE,
            CKA_ALWAYS_SENSITIVE,
            CKA_NEVER_EXTRACTABLE,
            CKA_CHECK_VALUE,
            CKA_WRAP_WITH_TRUSTED,
            CKA_TRUSTED,
            CKA_VALUE_LEN,
        ],
        _ => &[],
    }
}

/// What a token shows only of keys that are not sensitive.
pub(crate) fn secrets_of(class: Class) -> &'static [u64] {
    match class {
        Class::SECRET_KEY => &[CKA_VALUE],
        Class::PRIVATE_KEY => &[
            CKA_PRIVATE_EXPONENT,
            CKA_PRIME_1,
            CKA_PRIME_2,
            CKA_EXPONENT_1,
            CKA_EXPONENT_2,
            CKA_COEFFICIENT,
            CKA_VALUE,
        ],
        _ => &[],
    }
}
