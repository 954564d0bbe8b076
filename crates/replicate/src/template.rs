//! Templates: of a key on its way (a session object that can be wrapped), and of the copies that stay.

use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class};

/// The uses of a key.
const USES: &[u64] = &[
    CKA_ENCRYPT,
    CKA_DECRYPT,
    CKA_SIGN,
    CKA_SIGN_RECOVER,
    CKA_VERIFY,
    CKA_VERIFY_RECOVER,
    CKA_WRAP,
    CKA_UNWRAP,
    CKA_DERIVE,
];

/// Attributes of a copy that its token cannot find out by itself.
const TEMPLATE_ATTRIBUTES: &[u64] = &[
    CKA_CLASS,
    CKA_KEY_TYPE,
    CKA_PRIVATE,
    CKA_LABEL,
    CKA_ID,
    CKA_SUBJECT,
    CKA_START_DATE,
    CKA_END_DATE,
    CKA_MODIFIABLE,
    CKA_ALWAYS_AUTHENTICATE,
    CKA_WRAP_WITH_TRUSTED,
    CKA_ALLOWED_MECHANISMS,
    CKA_SENSITIVE,
    CKA_EXTRACTABLE,
];

/// The template of the session object for a key in transfer: the holder of its handle can wrap it, and no program can
/// read it.
pub(super) fn passing(asked: &Attributes) -> Attributes {
    asked
        .clone()
        .with_flag(CKA_TOKEN, false)
        .with_flag(CKA_SENSITIVE, true)
        .with_flag(CKA_EXTRACTABLE, true)
}

/// The template of an unwrapped copy: the requested attributes, and the uses that the first token added, so all
/// copies are alike. Sensitive, and not extractable unless requested.
pub(super) fn copy(asked: &Attributes, found: &Attributes) -> Attributes {
    let mut copy = Attributes::default();
    for kind in TEMPLATE_ATTRIBUTES {
        let value = asked
            .get(*kind)
            .or_else(|| found.get(*kind).filter(|value| tells(*kind, value)));
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            copy.set(*kind, value.to_vec());
        }
    }
    for kind in USES {
        match (asked.flag(*kind), found.flag(*kind)) {
            (Some(asked), _) => copy.set_flag(*kind, asked),
            (None, Some(true)) => copy.set_flag(*kind, true),
            _ => {}
        }
    }
    copy.set_flag(CKA_TOKEN, true);
    for (kind, default) in [(CKA_SENSITIVE, true), (CKA_EXTRACTABLE, false)] {
        if copy.flag(kind).is_none() {
            copy.set_flag(kind, default);
        }
    }
    copy
}

/// Tells whether another token needs a value that the first one gave by itself. Some tokens refuse attributes that
/// they do not know, even with the default.
fn tells(kind: u64, value: &[u8]) -> bool {
    match kind {
        CKA_SENSITIVE | CKA_EXTRACTABLE => false,
        CKA_MODIFIABLE => value == [CK_FALSE],
        CKA_ALWAYS_AUTHENTICATE | CKA_WRAP_WITH_TRUSTED => value != [CK_FALSE],
        _ => true,
    }
}

/// The template under which a public object (certificate, public key, data) is created again from
/// what another token says of it.
pub(super) fn created(found: &Attributes) -> Attributes {
    // Said by the token, not to it.
    const READ_ONLY: &[u64] = &[
        CKA_LOCAL,
        CKA_KEY_GEN_MECHANISM,
        CKA_MODULUS_BITS,
        CKA_UNIQUE_ID,
        CKA_TRUSTED,
        CKA_PUBLIC_KEY_INFO,
        CKA_CHECK_VALUE,
        CKA_COPYABLE,
        CKA_DESTROYABLE,
        CKA_ALLOWED_MECHANISMS,
        CKA_SENSITIVE,
        CKA_EXTRACTABLE,
        CKA_ALWAYS_SENSITIVE,
        CKA_NEVER_EXTRACTABLE,
    ];
    let mut created = found.clone();
    created
        .0
        .retain(|a| !a.value.is_empty() && !READ_ONLY.contains(&a.kind));
    created.set_flag(CKA_TOKEN, true);
    created
}

/// Attributes for the public half of a new pair, without its value.
pub(super) fn public(asked: &Attributes) -> Attributes {
    let mut public = asked.clone();
    public.0.retain(|a| {
        let secret = matches!(a.kind, CKA_SENSITIVE | CKA_EXTRACTABLE);
        !secret && (TEMPLATE_ATTRIBUTES.contains(&a.kind) || USES.contains(&a.kind))
    });
    public
}

/// The class that a template names.
pub(super) fn class(template: &Attributes) -> Option<Class> {
    template.number(CKA_CLASS).map(Class)
}

/// One template over another.
pub(super) fn over(base: &Attributes, changes: &Attributes) -> Attributes {
    let mut merged = base.clone();
    for attribute in &changes.0 {
        merged.set(attribute.kind, attribute.value.0.clone());
    }
    merged
}
