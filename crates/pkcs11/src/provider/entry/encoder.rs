//! From a key to text for people (provider-encoder(7)): `-text` of a key whose private half stays in the pool.
//!
//! OpenSSL's own encoders write public keys, which they are given by keymgmt's export.

use std::ffi::{c_int, c_void};

use super::abi::{Algorithm, Dispatch, Opaque, Param};
use super::guard::callbacks;
use super::init::Provider;
use super::keymgmt::{KeyData, PRIVATE};
use crate::provider::text;

pub static ALGORITHMS: [Algorithm; 3] = [
    Algorithm::new(
        c"RSA:rsaEncryption:1.2.840.113549.1.1.1",
        c"provider=hsmux,output=text",
        &FUNCTIONS,
    ),
    Algorithm::new(
        c"EC:id-ecPublicKey:1.2.840.10045.2.1",
        c"provider=hsmux,output=text",
        &FUNCTIONS,
    ),
    Algorithm::END,
];

static FUNCTIONS: [Dispatch; 5] = [
    Dispatch::new(1, new_context as *const ()),
    Dispatch::new(2, free_context as *const ()),
    Dispatch::new(10, does_selection as *const ()),
    Dispatch::new(11, encode as *const ()),
    Dispatch::END,
];

callbacks! {
    /// An encoder has no state but the provider's.
    fn new_context(provider: *const Provider) -> *const Provider {
        provider
    }

    fn free_context(_provider: *const Provider) {}

    fn does_selection(_provider: *const Provider, selection: c_int) -> c_int {
        c_int::from(selection & PRIVATE != 0)
    }

    fn encode(
        provider: *const Provider,
        output: *mut Opaque,
        key: *const KeyData,
        _parts: *const Param,
        _selection: c_int,
        _passphrase: *const Opaque,
        _passphrase_argument: *mut c_void,
    ) -> c_int {
        let core = &(*provider).core;
        let text = (*key).key().map(|key| text::of(key));
        core.done(text.and_then(|text| core.write(output, text.as_bytes())))
    }
}
