//! Session objects without a secret: public keys, certificates and data, which live in this process.

use hsmux_software::{PublicKey, unchecked_kind};
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class};

use super::template::is_token;
use crate::rv::{Result, Rv};

/// True if an object needs no member. A public key that this process cannot compute with does.
pub fn is_local(class: Class, template: &Attributes) -> bool {
    let is_open = matches!(class, Class::PUBLIC_KEY | Class::CERTIFICATE | Class::DATA);
    is_open && !is_token(template) && unchecked_kind(template).is_none()
}

/// All attributes of an object that is made here of a template.
pub fn complete(class: Class, template: &Attributes) -> Result<Attributes> {
    let mut whole = match class {
        Class::PUBLIC_KEY => public_key(template)?,
        Class::CERTIFICATE => {
            required(template, &[CKA_CERTIFICATE_TYPE, CKA_VALUE])?;
            Attributes::default()
                .with_flag(CKA_TRUSTED, false)
                .with_number(CKA_CERTIFICATE_CATEGORY, 0)
        }
        _ => Attributes::default()
            .with(CKA_APPLICATION, Vec::new())
            .with(CKA_OBJECT_ID, Vec::new())
            .with(CKA_VALUE, Vec::new()),
    };
    for (flag, value) in [
        (CKA_TOKEN, false),
        (CKA_PRIVATE, false),
        (CKA_MODIFIABLE, true),
        (CKA_COPYABLE, true),
        (CKA_DESTROYABLE, true),
    ] {
        whole.set_flag(flag, value);
    }
    whole.set(CKA_LABEL, Vec::new());
    for attribute in &template.0 {
        whole.set(attribute.kind, attribute.value.0.clone());
    }
    Ok(whole)
}

fn public_key(template: &Attributes) -> Result<Attributes> {
    required(template, &[CKA_KEY_TYPE])?;
    let key = PublicKey::from_attributes(template).map_err(|error| {
        crate::debug::say(&error);
        Rv(CKR_TEMPLATE_INCONSISTENT)
    })?;
    let mut whole = key.to_attributes();
    for usage in [CKA_ENCRYPT, CKA_VERIFY, CKA_VERIFY_RECOVER, CKA_WRAP] {
        whole.set_flag(usage, true);
    }
    for flag in [CKA_DERIVE, CKA_LOCAL, CKA_TRUSTED] {
        whole.set_flag(flag, false);
    }
    whole.set(CKA_ID, Vec::new());
    whole.set(CKA_SUBJECT, Vec::new());
    Ok(whole)
}

fn required(template: &Attributes, kinds: &[CK_ATTRIBUTE_TYPE]) -> Result {
    if kinds.iter().all(|kind| template.get(*kind).is_some()) {
        Ok(())
    } else {
        Err(Rv(CKR_TEMPLATE_INCOMPLETE))
    }
}
