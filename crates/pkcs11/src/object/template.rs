//! What a template may say.

use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class};

use crate::rv::{Result, Rv};

/// Refuses what could be read in two ways; the daemon looks again.
pub fn check(template: &Attributes) -> Result {
    template.check().map_err(Rv)
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
