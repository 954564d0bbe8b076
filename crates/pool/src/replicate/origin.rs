//! How a key was made: a copy that was unwrapped says nothing of that, so the journal does.

use hsmux_token::ck::*;
use hsmux_token::{Attributes, Object};

/// What a token says of the making of its own keys (PKCS#11 3.0, sections 4.7 to 4.10). SoftHSM 2.6.1 does not even
/// tell the length of an unwrapped key.
const TOLD: [u64; 5] = [
    CKA_LOCAL,
    CKA_KEY_GEN_MECHANISM,
    CKA_VALUE_LEN,
    CKA_ALWAYS_SENSITIVE,
    CKA_NEVER_EXTRACTABLE,
];

/// What a token says of the making of a key: all of it, for a copy within the token.
pub(super) fn told(found: &Attributes) -> Attributes {
    let mut told = found.clone();
    told.0.retain(|a| TOLD.contains(&a.kind));
    if told.number(CKA_VALUE_LEN) == Some(0) {
        told.remove(CKA_VALUE_LEN);
    }
    told
}

/// The same of a key that was generated for the pool. The session object that it was on its way could be wrapped for
/// the members' transport keys, and by nobody else: to a program, such a key was never sensitive or extractable otherwise
/// than its template says.
pub(super) fn generated(found: &Attributes, template: &Attributes) -> Attributes {
    told(found)
        .with_flag(
            CKA_ALWAYS_SENSITIVE,
            template.flag(CKA_SENSITIVE) == Some(true),
        )
        .with_flag(
            CKA_NEVER_EXTRACTABLE,
            template.flag(CKA_EXTRACTABLE) != Some(true),
        )
}

/// The same of a key that was unwrapped, derived or created: only its length.
pub(super) fn length(found: &Attributes) -> Attributes {
    let mut told = told(found);
    told.0.retain(|a| a.kind == CKA_VALUE_LEN);
    told
}

/// The object says what is told of its making, whatever its token says.
pub(super) fn show(object: &mut Object, told: &Attributes) {
    for attribute in &told.0 {
        let (kind, value) = (attribute.kind, attribute.value.0.clone());
        object.attributes.set(kind, value);
    }
}
