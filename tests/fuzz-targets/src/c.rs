//! Templates and mechanisms in an application's memory.

use hsmux_pkcs11::entry::fuzzing;
use minicbor::{Decode, Encode};

/// CK_ATTRIBUTE arrays.
pub fn templates(input: &[u8]) {
    if let Some(template) = fuzzing::template(input) {
        let _ = template.check();
        travels(&template);
    }
}

/// CK_MECHANISM with its parameter.
pub fn mechanisms(input: &[u8]) {
    if let Some(mechanism) = fuzzing::mechanism(input) {
        travels(&mechanism);
    }
}

/// What was read arrives at the daemon as it is.
fn travels<T>(read: &T)
where
    T: for<'b> Decode<'b, ()> + Encode<()> + PartialEq + std::fmt::Debug,
{
    let bytes = minicbor::to_vec(read).expect("memory has room");
    assert_eq!(
        &minicbor::decode::<T>(&bytes).expect("what was written"),
        read
    );
}
