//! Keys (provider-keymgmt(7)): they are looked at, compared and passed on, and neither made nor changed.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use hsmux_token::{Error, KeyKind, Kind, Result};

use super::abi::{Algorithm, Callback, Dispatch, INTEGER, OCTETS, Param, UNSIGNED, UTF8};
use super::core::OpensslCore;
use super::guard::callbacks;
use super::init::Provider;
use super::param::{self, ParamArray};
use crate::provider::key::ProviderKey;
use crate::provider::names;

/// OpenSSL's keydata: a key, or the place for one that is to be imported.
#[derive(Clone)]
pub struct KeyData {
    /// The core that gets the reasons of failures.
    pub core: OpensslCore,
    pub key: Option<Arc<ProviderKey>>,
}

/// It is looked at by several threads at the same time.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<KeyData>();
};

/// OSSL_KEYMGMT_SELECT_*.
pub const PRIVATE: c_int = 1;
const PUBLIC: c_int = 2;
const PAIR: c_int = PRIVATE | PUBLIC;

/// OSSL_OP_KEYEXCH and OSSL_OP_SIGNATURE.
const AGREEMENT: c_int = 11;
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
    fn new(provider: *const Provider) -> *mut KeyData {
        let core = (*provider).core;
        Box::into_raw(Box::new(KeyData { core, key: None }))
    }

    /// The reference is a pointer that the decoder has made; it is taken out of its place.
    fn load(reference: *mut *mut KeyData, size: usize) -> *mut KeyData {
        if size != size_of::<*mut KeyData>() {
            return std::ptr::null_mut();
        }
        reference.replace(std::ptr::null_mut())
    }

    fn free(key: *mut KeyData) {
        if !key.is_null() {
            drop(Box::from_raw(key));
        }
    }

    /// The whole key: a part of it is none.
    fn dup(key: *const KeyData, selection: c_int) -> *mut KeyData {
        let held = &*key;
        if selection & PAIR != PAIR {
            held.core.raise(&invalid("a key is copied as a whole, not its parameters or its public half alone"));
            return std::ptr::null_mut();
        }
        Box::into_raw(Box::new(held.clone()))
    }

    fn get_params(key: *const KeyData, params: *mut Param) -> c_int {
        let held = &*key;
        let answered = held.key().and_then(|key| param::answer(params, |name| Ok(key.describe(name))));
        held.core.done(answered)
    }

    fn has(key: *const KeyData, selection: c_int) -> c_int {
        let key = key.as_ref().and_then(|held| held.key.as_ref());
        c_int::from(key.is_some_and(|key| selection & PRIVATE == 0 || key.private.is_some()))
    }

    /// Two keys, or only what keys of one curve have in common.
    fn matches(one: *const KeyData, other: *const KeyData, selection: c_int) -> c_int {
        let (Some(one), Some(other)) = (&(*one).key, &(*other).key) else {
            return 0;
        };
        c_int::from(if selection & PAIR == 0 {
            one.public.curve().ok() == other.public.curve().ok()
        } else {
            one.public == other.public
        })
    }

    fn import_rsa(key: *mut KeyData, _selection: c_int, params: *mut Param) -> c_int {
        import(&mut *key, KeyKind::Rsa, params)
    }

    fn import_ec(key: *mut KeyData, _selection: c_int, params: *mut Param) -> c_int {
        import(&mut *key, KeyKind::Ec, params)
    }

    fn export(key: *const KeyData, selection: c_int, take: Callback, argument: *mut c_void) -> c_int {
        let held = &*key;
        let (private, public) = (selection & PRIVATE != 0, selection & PUBLIC != 0);
        let values = held.key().and_then(|key| key.exported(private, public));
        match values {
            Ok(values) => take(ParamArray::of(values).as_ptr(), argument),
            // Before each signature OpenSSL asks for a copy of the key for its own provider, and forgets the error.
            Err(error) => {
                held.core.queue(&error);
                0
            }
        }
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
            AGREEMENT => c"ECDH".as_ptr(),
            _ => c"EC".as_ptr(),
        }
    }
}

impl KeyData {
    /// The key.
    pub fn key(&self) -> Result<&Arc<ProviderKey>> {
        self.key
            .as_ref()
            .ok_or_else(|| invalid("no key has been loaded or imported"))
    }
}

/// A public key that OpenSSL's own provider has: to be compared with one of ours. A private key is not even looked at:
/// who has it signs with it himself.
unsafe fn import(held: &mut KeyData, kind: KeyKind, params: *mut Param) -> c_int {
    // SAFETY: an array of OpenSSL's, which lives as long as this call.
    let is_private = unsafe {
        let mut all = param::all(params);
        all.any(|param| names::PRIVATE.contains(&(*param).name()))
    };
    if is_private {
        held.core.raise(&invalid(
            "a private key of another provider is not imported; that provider uses it",
        ));
        return 0;
    }
    let value = |name: &CStr| {
        // SAFETY: as above.
        let mut values = unsafe { param::values(params) };
        values.find(|value| value.0 == name).map(|value| value.1)
    };
    held.key = ProviderKey::import(kind, value).map(Arc::new);
    if held.key.is_none() {
        held.core.raise(&invalid(
            "not the parameters of a public key: RSA has n and e, EC has group and pub",
        ));
    }
    c_int::from(held.key.is_some())
}

fn invalid(message: &str) -> Error {
    Error::request(Kind::Invalid, message)
}
