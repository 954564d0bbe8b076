//! Rules for templates.

use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class};

use crate::rv::{Result, Rv};

/// Refuses what could be read in two ways; the daemon looks again.
pub fn check(template: &Attributes) -> Result {
    template.check().map_err(Rv)
}

/// Refuses CKA_TRUSTED: the security officer alone may set it, and no application is that (PKCS#11 3.0, section 4.6.2).
pub fn untrusted(template: &Attributes) -> Result {
    if template.flag(CKA_TRUSTED) == Some(true) {
        return Err(Rv(CKR_ATTRIBUTE_READ_ONLY));
    }
    Ok(())
}

/// Refuses an X.509 certificate without the subject that it must have (PKCS#11 3.0, section 4.6.3).
pub fn complete(class: Class, template: &Attributes) -> Result {
    let is_x509 = template.number(CKA_CERTIFICATE_TYPE) == Some(CKC_X_509);
    if class == Class::CERTIFICATE && is_x509 && template.get(CKA_SUBJECT).is_none() {
        return Err(Rv(CKR_TEMPLATE_INCOMPLETE));
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
