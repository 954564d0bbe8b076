//! Keys (provider-keymgmt(7)): they are looked at, compared and passed on, and neither made nor changed.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use hsmux_token::KeyKind;

use super::abi::{Algorithm, Callback, Dispatch, INTEGER, OCTETS, Param, UNSIGNED, UTF8};
use super::guard::callbacks;
use super::init::Provider;
use super::param::{self, Array};
use crate::provider::key::Key;
use crate::provider::names;

/// What OpenSSL has a pointer to: a key, or the place for one that is to be imported.
pub type Held = Option<Arc<Key>>;

/// It is looked at by several threads at the same time.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Held>();
};

/// OSSL_KEYMGMT_SELECT_*.
const PRIVATE: c_int = 1;
const PUBLIC: c_int = 2;
const PAIR: c_int = PRIVATE | PUBLIC;

/// OSSL_OP_SIGNATURE.
const SIGNATURE: c_int = 12;

pub static ALGORITHMS: [Algorithm; 3] = [
    Algorithm::new(
        c"RSA:rsaEncryption:1.2.840.113549.1.1.1",
        c"provider=hsmux",
        &RSA,
    ),
    Algorithm::new(
        c"EC:id-ecPublicKey:1.2.840.10045.2.1",
        c"provider=hsmux",
        &EC,
    ),
    Algorithm::END,
];

/// Both families differ in three functions.
macro_rules! functions {
    ($import:ident, $types:ident, $gettable:ident, $query:ident) => {
        [
            Dispatch::new(1, new as *const ()),
            Dispatch::new(8, load as *const ()),
            Dispatch::new(10, free as *const ()),
            Dispatch::new(11, get_params as *const ()),
            Dispatch::new(12, $gettable as *const ()),
            Dispatch::new(20, $query as *const ()),
            Dispatch::new(21, has as *const ()),
            Dispatch::new(23, matches as *const ()),
            Dispatch::new(40, $import as *const ()),
            Dispatch::new(41, $types as *const ()),
            Dispatch::new(42, export as *const ()),
            Dispatch::new(43, $types as *const ()),
            Dispatch::new(44, dup as *const ()),
            Dispatch::END,
        ]
    };
}

static RSA: [Dispatch; 14] = functions!(import_rsa, types_rsa, gettable_rsa, query_rsa);
static EC: [Dispatch; 14] = functions!(import_ec, types_ec, gettable_ec, query_ec);

static TYPES_RSA: [Param; 3] = [
    Param::named(names::MODULUS, UNSIGNED),
    Param::named(names::EXPONENT, UNSIGNED),
    Param::END,
];
static TYPES_EC: [Param; 3] = [
    Param::named(names::GROUP, UTF8),
    Param::named(names::POINT, OCTETS),
    Param::END,
];
static GETTABLE_RSA: [Param; 7] = [
    Param::named(names::BITS, INTEGER),
    Param::named(names::SECURITY_BITS, INTEGER),
    Param::named(names::MAX_SIZE, INTEGER),
    Param::named(names::DEFAULT_DIGEST, UTF8),
    Param::named(names::MODULUS, UNSIGNED),
    Param::named(names::EXPONENT, UNSIGNED),
    Param::END,
];
static GETTABLE_EC: [Param; 9] = [
    Param::named(names::BITS, INTEGER),
    Param::named(names::SECURITY_BITS, INTEGER),
    Param::named(names::MAX_SIZE, INTEGER),
    Param::named(names::DEFAULT_DIGEST, UTF8),
    Param::named(names::GROUP, UTF8),
    Param::named(names::POINT, OCTETS),
    Param::named(names::ENCODED_POINT, OCTETS),
    Param::named(names::POINT_FORMAT, UTF8),
    Param::END,
];

callbacks! {
    fn new(_provider: *const Provider) -> *mut Held {
        Box::into_raw(Box::new(None))
    }

    /// The reference is a pointer that the decoder has made; it is taken out of its place.
    fn load(reference: *mut *mut Held, size: usize) -> *mut Held {
        if size != size_of::<*mut Held>() {
            return std::ptr::null_mut();
        }
        reference.replace(std::ptr::null_mut())
    }

    fn free(key: *mut Held) {
        if !key.is_null() {
            drop(Box::from_raw(key));
        }
    }

    /// The whole key: a part of it is none.
    fn dup(key: *const Held, selection: c_int) -> *mut Held {
        if selection & PAIR != PAIR {
            return std::ptr::null_mut();
        }
        Box::into_raw(Box::new((*key).clone()))
    }

    fn get_params(key: *const Held, params: *mut Param) -> c_int {
        let Some(key) = &*key else {
            return 0;
        };
        c_int::from(param::all(params).all(|param| match key.describe((*param).name()) {
            Some(value) => (*param).put(&value),
            None => true,
        }))
    }

    fn has(key: *const Held, selection: c_int) -> c_int {
        let Some(Some(key)) = key.as_ref() else {
            return 0;
        };
        c_int::from(selection & PRIVATE == 0 || key.private.is_some())
    }

    /// Two keys, or only what keys of one curve have in common.
    fn matches(one: *const Held, other: *const Held, selection: c_int) -> c_int {
        let (Some(one), Some(other)) = (&*one, &*other) else {
            return 0;
        };
        c_int::from(if selection & PAIR == 0 {
            one.public.curve().ok() == other.public.curve().ok()
        } else {
            one.public == other.public
        })
    }

    fn import_rsa(key: *mut Held, _selection: c_int, params: *mut Param) -> c_int {
        import(&mut *key, KeyKind::Rsa, params)
    }

    fn import_ec(key: *mut Held, _selection: c_int, params: *mut Param) -> c_int {
        import(&mut *key, KeyKind::Ec, params)
    }

    /// Of a private key nothing is given: a copy of the public half alone would be taken for the whole, and OpenSSL
    /// would sign with it in its own provider.
    fn export(key: *const Held, selection: c_int, take: Callback, argument: *mut c_void) -> c_int {
        let Some(key) = &*key else {
            return 0;
        };
        if selection & PRIVATE != 0 && key.private.is_some() {
            return 0;
        }
        let mut values = key.public_values();
        if selection & PUBLIC == 0 {
            values.retain(|(name, _)| *name == names::GROUP);
        }
        let array = Array::of(values);
        take(array.as_ptr(), argument)
    }

    fn types_rsa(_selection: c_int) -> *const Param {
        TYPES_RSA.as_ptr()
    }

    fn types_ec(_selection: c_int) -> *const Param {
        TYPES_EC.as_ptr()
    }

    fn gettable_rsa(_provider: *const Provider) -> *const Param {
        GETTABLE_RSA.as_ptr()
    }

    fn gettable_ec(_provider: *const Provider) -> *const Param {
        GETTABLE_EC.as_ptr()
    }

    fn query_rsa(_operation: c_int) -> *const c_char {
        c"RSA".as_ptr()
    }

    fn query_ec(operation: c_int) -> *const c_char {
        match operation {
            SIGNATURE => c"ECDSA".as_ptr(),
            _ => c"EC".as_ptr(),
        }
    }
}

/// A public key that OpenSSL's own provider has: to be compared with one of ours. A private key is not even looked at:
/// who has it signs with it himself.
unsafe fn import(key: &mut Held, kind: KeyKind, params: *mut Param) -> c_int {
    // SAFETY: an array of OpenSSL's, which lives as long as this call.
    let is_private = unsafe {
        let mut all = param::all(params);
        all.any(|param| names::PRIVATE.contains(&(*param).name()))
    };
    if is_private {
        return 0;
    }
    // SAFETY: as above.
    let value = |name: &std::ffi::CStr| unsafe {
        let mut all = param::all(params);
        let param = &*all.find(|param| (**param).name() == name)?;
        param.value()
    };
    *key = Key::import(kind, value).map(Arc::new);
    c_int::from(key.is_some())
}
