//! Signatures (provider-signature(7)): the key's family decides, so that all algorithms have one table.

use std::ffi::{CStr, c_char, c_int};

use hsmux_token::Result;

use super::abi::{Algorithm, Dispatch, OCTETS, Param, UTF8};
use super::core::Core;
use super::guard::callbacks;
use super::init::Provider;
use super::keymgmt::Held;
use super::param;
use crate::provider::names;
use crate::provider::signing::Signing;

/// A context of OpenSSL's.
#[derive(Clone)]
struct Active {
    core: Core,
    signing: Signing,
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

static FUNCTIONS: [Dispatch; 14] = [
    Dispatch::new(1, new_context as *const ()),
    Dispatch::new(2, sign_init as *const ()),
    Dispatch::new(3, sign as *const ()),
    Dispatch::new(8, digest_sign_init as *const ()),
    Dispatch::new(9, digest_sign_update as *const ()),
    Dispatch::new(10, digest_sign_final as *const ()),
    Dispatch::new(11, sign as *const ()),
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
    fn new_context(provider: *const Provider, _properties: *const c_char) -> *mut Active {
        let core = (*provider).core;
        let signing = Signing::default();
        Box::into_raw(Box::new(Active { core, signing }))
    }

    fn free_context(active: *mut Active) {
        if !active.is_null() {
            drop(Box::from_raw(active));
        }
    }

    fn dup_context(active: *const Active) -> *mut Active {
        Box::into_raw(Box::new((*active).clone()))
    }

    fn sign_init(active: *mut Active, key: *const Held, params: *mut Param) -> c_int {
        (*active).begin(key, None, false, params)
    }

    fn digest_sign_init(
        active: *mut Active,
        digest: *const c_char,
        key: *const Held,
        params: *mut Param,
    ) -> c_int {
        let digest = (!digest.is_null()).then(|| CStr::from_ptr(digest));
        (*active).begin(key, digest, true, params)
    }

    fn digest_sign_update(active: *mut Active, part: *const u8, len: usize) -> c_int {
        let active = &mut *active;
        let fed = slice(part, len).map(|part| active.signing.feed(part));
        c_int::from(fed.is_some_and(|fed| active.core.told(fed).is_some()))
    }

    fn digest_sign_final(active: *mut Active, place: *mut u8, len: *mut usize, room: usize) -> c_int {
        (*active).finish(place, len, room, &[])
    }

    /// All at once: a digest after sign_init, the data themselves after digest_sign_init.
    fn sign(
        active: *mut Active,
        place: *mut u8,
        len: *mut usize,
        room: usize,
        data: *const u8,
        data_len: usize,
    ) -> c_int {
        match slice(data, data_len) {
            Some(data) => (*active).finish(place, len, room, data),
            None => 0,
        }
    }

    fn get_params(active: *const Active, params: *mut Param) -> c_int {
        let Active { core, signing } = &*active;
        c_int::from(param::all(params).all(|param| match core.told(signing.get((*param).name())) {
            Some(Some(value)) => (*param).put(&value),
            Some(None) => true,
            None => false,
        }))
    }

    fn set_params(active: *mut Active, params: *mut Param) -> c_int {
        let active = &mut *active;
        let set = set(&mut active.signing, params);
        c_int::from(active.core.told(set).is_some())
    }

    fn gettable_params(_active: *const Active, _provider: *const Provider) -> *const Param {
        GETTABLE.as_ptr()
    }

    fn settable_params(_active: *const Active, _provider: *const Provider) -> *const Param {
        SETTABLE.as_ptr()
    }
}

impl Active {
    unsafe fn begin(
        &mut self,
        key: *const Held,
        digest: Option<&CStr>,
        hashes: bool,
        params: *mut Param,
    ) -> c_int {
        // SAFETY: null, or one of keymgmt's keys.
        let key = unsafe { key.as_ref() }.cloned().flatten();
        let digest = digest.and_then(|digest| digest.to_str().ok());
        let begun = self.signing.begin(key, digest, hashes);
        // SAFETY: null, or an array of OpenSSL's.
        let begun = begun.and_then(|()| unsafe { set(&mut self.signing, params) });
        c_int::from(self.core.told(begun).is_some())
    }

    unsafe fn finish(
        &mut self,
        place: *mut u8,
        len: *mut usize,
        room: usize,
        last: &[u8],
    ) -> c_int {
        // SAFETY: the length has a place, always.
        let len = unsafe { &mut *len };
        if place.is_null() {
            *len = self.signing.max_len();
            return 1;
        }
        let Some(signature) = self.core.told(self.signing.finish(last, room)) else {
            return 0;
        };
        *len = signature.len();
        // SAFETY: it is no longer than the room that `finish` was told of.
        unsafe { place.copy_from_nonoverlapping(signature.as_ptr(), signature.len()) };
        1
    }
}

unsafe fn set(signing: &mut Signing, params: *mut Param) -> Result<()> {
    // SAFETY: null, or an array of OpenSSL's, which lives as long as this call.
    for param in unsafe { param::all(params) } {
        // SAFETY: as above; nobody writes to it.
        let param = unsafe { &*param };
        // SAFETY: as above.
        if let (name, Some(value)) = unsafe { (param.name(), param.value()) } {
            signing.set(name, &value)?;
        }
    }
    Ok(())
}

unsafe fn slice<'a>(data: *const u8, len: usize) -> Option<&'a [u8]> {
    if len == 0 {
        return Some(&[]);
    }
    // SAFETY: not null, and as long as OpenSSL says.
    (!data.is_null()).then(|| unsafe { std::slice::from_raw_parts(data, len) })
}
