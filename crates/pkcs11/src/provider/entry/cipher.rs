//! RSA encryption and decryption (provider-asym_cipher(7)).

use std::ffi::c_int;

use hsmux_token::Result;

use super::abi::{Algorithm, Dispatch, OCTETS, Param, UTF8};
use super::core::OpensslCore;
use super::guard::callbacks;
use super::init::Provider;
use super::keymgmt::KeyData;
use super::octets::{OutputBuffer, slice};
use super::param;
use crate::provider::cipher::RsaCipher;
use crate::provider::names;

/// A context of OpenSSL's.
#[derive(Clone)]
struct CipherContext {
    core: OpensslCore,
    cipher: RsaCipher,
}

pub static ALGORITHMS: [Algorithm; 2] = [
    Algorithm::new(
        c"RSA:rsaEncryption:1.2.840.113549.1.1.1",
        c"provider=hsmux",
        &FUNCTIONS,
    ),
    Algorithm::END,
];

static FUNCTIONS: [Dispatch; 12] = [
    Dispatch::new(1, new_context as *const ()),
    Dispatch::new(2, encrypt_init as *const ()),
    Dispatch::new(3, run as *const ()),
    Dispatch::new(4, decrypt_init as *const ()),
    Dispatch::new(5, run as *const ()),
    Dispatch::new(6, free_context as *const ()),
    Dispatch::new(7, dup_context as *const ()),
    Dispatch::new(8, get_params as *const ()),
    Dispatch::new(9, gettable_params as *const ()),
    Dispatch::new(10, set_params as *const ()),
    Dispatch::new(11, settable_params as *const ()),
    Dispatch::END,
];

static GETTABLE: [Param; 4] = [
    Param::named(names::PAD_MODE, UTF8),
    Param::named(names::DIGEST, UTF8),
    Param::named(names::MGF1_DIGEST, UTF8),
    Param::END,
];
static SETTABLE: [Param; 5] = [
    Param::named(names::PAD_MODE, UTF8),
    Param::named(names::DIGEST, UTF8),
    Param::named(names::MGF1_DIGEST, UTF8),
    Param::named(names::OAEP_LABEL, OCTETS),
    Param::END,
];

callbacks! {
    fn new_context(provider: *const Provider) -> *mut CipherContext {
        let core = (*provider).core;
        let cipher = RsaCipher::default();
        Box::into_raw(Box::new(CipherContext { core, cipher }))
    }

    fn free_context(active: *mut CipherContext) {
        if !active.is_null() {
            drop(Box::from_raw(active));
        }
    }

    fn dup_context(active: *const CipherContext) -> *mut CipherContext {
        Box::into_raw(Box::new((*active).clone()))
    }

    fn encrypt_init(active: *mut CipherContext, key: *const KeyData, params: *mut Param) -> c_int {
        (*active).begin(key, false, params)
    }

    fn decrypt_init(active: *mut CipherContext, key: *const KeyData, params: *mut Param) -> c_int {
        (*active).begin(key, true, params)
    }

    /// Encrypts or decrypts, as the init before it has said.
    fn run(
        active: *mut CipherContext,
        data: *mut u8,
        len: *mut usize,
        room: usize,
        input: *const u8,
        input_len: usize,
    ) -> c_int {
        let CipherContext { core, cipher } = &*active;
        let output = OutputBuffer { data, len, room };
        output.fill(core, cipher.max_len(), |room| cipher.run(slice(input, input_len)?, room))
    }

    fn get_params(active: *const CipherContext, params: *mut Param) -> c_int {
        let CipherContext { core, cipher } = &*active;
        core.done(param::answer(params, |name| Ok(cipher.get(name))))
    }

    fn set_params(active: *mut CipherContext, params: *mut Param) -> c_int {
        let active = &mut *active;
        let set = set(&mut active.cipher, params);
        active.core.done(set)
    }

    fn gettable_params(_active: *const CipherContext, _provider: *const Provider) -> *const Param {
        GETTABLE.as_ptr()
    }

    fn settable_params(_active: *const CipherContext, _provider: *const Provider) -> *const Param {
        SETTABLE.as_ptr()
    }
}

impl CipherContext {
    unsafe fn begin(&mut self, key: *const KeyData, deciphers: bool, params: *mut Param) -> c_int {
        // SAFETY: null, or one of keymgmt's keys.
        let key = unsafe { key.as_ref() }.and_then(|held| held.key.clone());
        let begun = self.cipher.begin(key, deciphers);
        // SAFETY: null, or an array of OpenSSL's.
        let begun = begun.and_then(|()| unsafe { set(&mut self.cipher, params) });
        self.core.done(begun)
    }
}

unsafe fn set(cipher: &mut RsaCipher, params: *mut Param) -> Result<()> {
    // SAFETY: null, or an array of OpenSSL's, which lives as long as this call.
    let mut values = unsafe { param::values(params) };
    values.try_for_each(|(name, value)| cipher.set(name, &value))
}
