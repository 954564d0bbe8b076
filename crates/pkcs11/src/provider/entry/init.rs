//! OSSL_provider_init, and what the provider as a whole answers (provider-base(7)).

use std::ffi::{CStr, c_int, c_void};
use std::path::PathBuf;
use std::ptr::null;
use std::sync::Arc;

use hsmux_token::Result;

use super::abi::{Algorithm, Dispatch, INTEGER, Opaque, OsslItem, Param, UTF8_PTR};
use super::core::{OpensslCore, REASON};
use super::guard::callbacks;
use super::{agreement, cipher, decoder, encoder, keymgmt, param, signature};
use crate::entry::caught;
use crate::provider::context::ProviderContext;
use crate::provider::names;
use crate::provider::value::ParamValue;
use crate::setup::PoolLocation;

/// OSSL_OP_*: what can be asked for.
const KEYMGMT: c_int = 10;
const AGREEMENT: c_int = 11;
const SIGNATURE: c_int = 12;
const CIPHER: c_int = 13;
const ENCODER: c_int = 20;
const DECODER: c_int = 21;

/// The state of an activation of the provider.
pub struct Provider {
    pub core: OpensslCore,
    pub context: Arc<ProviderContext>,
}

impl Provider {
    /// The result of a decoder. An error goes into OpenSSL's queue, which is emptied before most programs read it,
    /// and to standard error.
    pub fn told<T>(&self, found: Result<T>) -> Option<T> {
        self.context.say(&found);
        self.core.told(found)
    }
}

static FUNCTIONS: [Dispatch; 6] = [
    Dispatch::new(1024, teardown as *const ()),
    Dispatch::new(1025, gettable_params as *const ()),
    Dispatch::new(1026, get_params as *const ()),
    Dispatch::new(1027, query_operation as *const ()),
    Dispatch::new(1029, reasons as *const ()),
    Dispatch::END,
];

const NAME: &CStr = c"name";
const VERSION: &CStr = c"version";
const BUILD: &CStr = c"buildinfo";
const STATUS: &CStr = c"status";

static PARAMS: [Param; 5] = [
    Param::named(NAME, UTF8_PTR),
    Param::named(VERSION, UTF8_PTR),
    Param::named(BUILD, UTF8_PTR),
    Param::named(STATUS, INTEGER),
    Param::END,
];

static REASONS: [OsslItem; 2] = [
    OsslItem {
        id: REASON,
        text: c"refused".as_ptr(),
    },
    OsslItem {
        id: 0,
        text: null(),
    },
];

const OWN_VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

/// The entry point that OpenSSL calls when it has loaded the module as a provider (provider(7)).
///
/// # Safety
///
/// OpenSSL's contract: its table of functions ends with number 0, and both places can be written to.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OSSL_provider_init(
    handle: *const c_void,
    functions: *const Dispatch,
    out: *mut *const Dispatch,
    provider: *mut *mut c_void,
) -> c_int {
    caught(0, || {
        // SAFETY: by this function's own contract.
        let core = unsafe { OpensslCore::new(handle, functions) };
        let path = |name| core.setting(name).map(PathBuf::from);
        let source = PoolLocation {
            socket: path(c"socket"),
            config: path(c"config"),
        };
        let context = Arc::new(ProviderContext::new(source));
        let made = Box::new(Provider { core, context });
        // SAFETY: by this function's own contract.
        unsafe {
            *out = FUNCTIONS.as_ptr();
            *provider = Box::into_raw(made).cast();
        }
        1
    })
}

callbacks! {
    fn teardown(provider: *mut Provider) {
        drop(Box::from_raw(provider));
    }

    fn gettable_params(_provider: *const Provider) -> *const Param {
        PARAMS.as_ptr()
    }

    fn get_params(provider: *const Provider, params: *mut Param) -> c_int {
        (*provider).core.done(param::answer(params, |name| Ok(answer(name))))
    }

    fn query_operation(_provider: *const Provider, operation: c_int, no_cache: *mut c_int) -> *const Algorithm {
        if let Some(no_cache) = no_cache.as_mut() {
            *no_cache = 0;
        }
        match operation {
            KEYMGMT => keymgmt::ALGORITHMS.as_ptr(),
            AGREEMENT => agreement::ALGORITHMS.as_ptr(),
            SIGNATURE => signature::ALGORITHMS.as_ptr(),
            CIPHER => cipher::ALGORITHMS.as_ptr(),
            ENCODER => encoder::ALGORITHMS.as_ptr(),
            DECODER => decoder::ALGORITHMS.as_ptr(),
            _ => null(),
        }
    }

    fn reasons(_provider: *const Opaque) -> *const OsslItem {
        REASONS.as_ptr()
    }
}

fn answer(name: &CStr) -> Option<ParamValue<'static>> {
    if name == NAME {
        Some(ParamValue::Name(names::PROVIDER))
    } else if name == VERSION || name == BUILD {
        Some(ParamValue::Name(OWN_VERSION))
    } else if name == STATUS {
        Some(ParamValue::Int(1))
    } else {
        None
    }
}
