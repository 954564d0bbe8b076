//! Signatures (provider-signature(7)): the key's family decides, and all algorithms share one table.

use std::ffi::{CStr, c_char, c_int};

use hsmux_token::{Error, Kind, Result};

use super::abi::{Algorithm, Dispatch, OCTETS, Param, UTF8};
use super::core::OpensslCore;
use super::guard::callbacks;
use super::init::Provider;
use super::keymgmt::KeyData;
use super::octets::{OutputBuffer, slice};
use super::param;
use crate::provider::names;
use crate::provider::signing::SignatureOperation;

/// A context of OpenSSL's.
#[derive(Clone)]
struct SignatureContext {
    core: OpensslCore,
    signing: SignatureOperation,
}

pub static ALGORITHMS: [Algorithm; 3] = [
    Algorithm::new(
        c"RSA:rsaEncryption:1.2.840.113549.1.1.1",
        c"provider=hsmux",
        &FUNCTIONS,
    ),
    Algorithm::new(c"ECDSA", c"provider=hsmux", &FUNCTIONS),
    Algorithm::END,
];

static FUNCTIONS: [Dispatch; 21] = [
    Dispatch::new(1, new_context as *const ()),
    Dispatch::new(2, sign_init as *const ()),
    Dispatch::new(3, sign as *const ()),
    Dispatch::new(4, no_verify_init as *const ()),
    Dispatch::new(5, no_verify as *const ()),
    Dispatch::new(6, no_verify_init as *const ()),
    Dispatch::new(7, no_verify as *const ()),
    Dispatch::new(8, digest_sign_init as *const ()),
    Dispatch::new(9, digest_sign_update as *const ()),
    Dispatch::new(10, digest_sign_final as *const ()),
    Dispatch::new(11, sign as *const ()),
    Dispatch::new(12, no_digest_verify_init as *const ()),
    Dispatch::new(13, no_verify as *const ()),
    Dispatch::new(14, no_verify as *const ()),
    Dispatch::new(16, free_context as *const ()),
    Dispatch::new(17, dup_context as *const ()),
    Dispatch::new(18, get_params as *const ()),
    Dispatch::new(19, gettable_params as *const ()),
    Dispatch::new(20, set_params as *const ()),
    Dispatch::new(21, settable_params as *const ()),
    Dispatch::END,
];

static GETTABLE: [Param; 4] = [
    Param::named(names::ALGORITHM_ID, OCTETS),
    Param::named(names::DIGEST, UTF8),
    Param::named(names::PAD_MODE, UTF8),
    Param::END,
];
static SETTABLE: [Param; 5] = [
    Param::named(names::DIGEST, UTF8),
    Param::named(names::PAD_MODE, UTF8),
    Param::named(names::SALT, UTF8),
    Param::named(names::MGF1_DIGEST, UTF8),
    Param::END,
];

callbacks! {
    fn new_context(provider: *const Provider, _properties: *const c_char) -> *mut SignatureContext {
        let core = (*provider).core;
        let signing = SignatureOperation::default();
        Box::into_raw(Box::new(SignatureContext { core, signing }))
    }

    fn free_context(active: *mut SignatureContext) {
        if !active.is_null() {
            drop(Box::from_raw(active));
        }
    }

    fn dup_context(active: *const SignatureContext) -> *mut SignatureContext {
        Box::into_raw(Box::new((*active).clone()))
    }

    fn sign_init(active: *mut SignatureContext, key: *const KeyData, params: *mut Param) -> c_int {
        (*active).begin(key, None, false, params)
    }

    fn digest_sign_init(
        active: *mut SignatureContext,
        digest: *const c_char,
        key: *const KeyData,
        params: *mut Param,
    ) -> c_int {
        let digest = (!digest.is_null()).then(|| CStr::from_ptr(digest));
        (*active).begin(key, digest, true, params)
    }

    fn digest_sign_update(active: *mut SignatureContext, part: *const u8, len: usize) -> c_int {
        let active = &mut *active;
        let fed = slice(part, len).and_then(|part| active.signing.feed(part));
        active.core.done(fed)
    }

    fn digest_sign_final(active: *mut SignatureContext, data: *mut u8, len: *mut usize, room: usize) -> c_int {
        (*active).finish(OutputBuffer { data, len, room }, &[])
    }

    /// All at once: a digest after sign_init, the data themselves after digest_sign_init.
    fn sign(
        active: *mut SignatureContext,
        signature: *mut u8,
        len: *mut usize,
        room: usize,
        data: *const u8,
        data_len: usize,
    ) -> c_int {
        let active = &mut *active;
        let Some(last) = active.core.told(slice(data, data_len)) else {
            return 0;
        };
        active.finish(OutputBuffer { data: signature, len, room }, last)
    }

    /// Verification, with recovery of the data and without.
    fn no_verify_init(active: *const SignatureContext, _key: *const KeyData, _params: *const Param) -> c_int {
        verify(&*active)
    }

    fn no_digest_verify_init(
        active: *const SignatureContext,
        _digest: *const c_char,
        _key: *const KeyData,
        _params: *const Param,
    ) -> c_int {
        verify(&*active)
    }

    /// All that follows an init, which has failed.
    fn no_verify(active: *const SignatureContext) -> c_int {
        verify(&*active)
    }

    fn get_params(active: *const SignatureContext, params: *mut Param) -> c_int {
        let SignatureContext { core, signing } = &*active;
        core.done(param::answer(params, |name| signing.get(name)))
    }

    fn set_params(active: *mut SignatureContext, params: *mut Param) -> c_int {
        let active = &mut *active;
        let set = set(&mut active.signing, params);
        active.core.done(set)
    }

    fn gettable_params(_active: *const SignatureContext, _provider: *const Provider) -> *const Param {
        GETTABLE.as_ptr()
    }

    fn settable_params(_active: *const SignatureContext, _provider: *const Provider) -> *const Param {
        SETTABLE.as_ptr()
    }
}

impl SignatureContext {
    unsafe fn begin(
        &mut self,
        key: *const KeyData,
        digest: Option<&CStr>,
        hashes: bool,
        params: *mut Param,
    ) -> c_int {
        // SAFETY: null, or one of keymgmt's keys.
        let key = unsafe { key.as_ref() }.and_then(|held| held.key.clone());
        let digest = digest.and_then(|digest| digest.to_str().ok());
        let begun = self.signing.begin(key, digest, hashes);
        // SAFETY: null, or an array of OpenSSL's.
        let begun = begun.and_then(|()| unsafe { set(&mut self.signing, params) });
        self.core.done(begun)
    }

    unsafe fn finish(&mut self, output: OutputBuffer, last: &[u8]) -> c_int {
        let Self { core, signing } = self;
        let most = signing.max_len();
        // SAFETY: the buffer is OpenSSL's.
        unsafe { output.fill(core, most, |room| signing.finish(last, room)) }
    }
}

/// OpenSSL's own provider verifies, with the public key.
fn verify(active: &SignatureContext) -> c_int {
    let message = "a reference to a private key verifies nothing; write the public key with openssl pkey -pubout, and \
                   verify by that (-pubin)";
    active
        .core
        .raise(&Error::request(Kind::Unsupported, message));
    0
}

unsafe fn set(signing: &mut SignatureOperation, params: *mut Param) -> Result<()> {
    // SAFETY: null, or an array of OpenSSL's, which lives as long as this call.
    let mut values = unsafe { param::values(params) };
    values.try_for_each(|(name, value)| signing.set(name, &value))
}
