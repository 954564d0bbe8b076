//! Key agreement (provider-keyexch(7)), which the provider does not have: these functions say so.

use std::ffi::c_int;

use hsmux_token::{Error, Kind};

use super::abi::{Algorithm, Dispatch, Param};
use super::guard::callbacks;
use super::init::Provider;
use super::keymgmt::KeyData;

pub static ALGORITHMS: [Algorithm; 2] = [
    Algorithm::new(c"ECDH", c"provider=hsmux", &FUNCTIONS),
    Algorithm::END,
];

static FUNCTIONS: [Dispatch; 5] = [
    Dispatch::new(1, new_context as *const ()),
    Dispatch::new(2, init as *const ()),
    Dispatch::new(3, derive as *const ()),
    Dispatch::new(5, free_context as *const ()),
    Dispatch::END,
];

const WHY: &str = "the provider agrees on no secrets (ECDH); a program that speaks PKCS#11 does, by \
                   CKM_ECDH1_DERIVE: pkcs11-tool --derive --mechanism ECDH1-DERIVE --module libhsmux_pkcs11.so";

callbacks! {
    /// A context has no state but the provider's.
    fn new_context(provider: *const Provider) -> *const Provider {
        provider
    }

    fn free_context(_provider: *const Provider) {}

    fn init(provider: *const Provider, _key: *const KeyData, _params: *const Param) -> c_int {
        refuse(&*provider)
    }

    fn derive(provider: *const Provider, _secret: *mut u8, _len: *mut usize, _room: usize) -> c_int {
        refuse(&*provider)
    }
}

fn refuse(provider: &Provider) -> c_int {
    provider.core.raise(&Error::request(Kind::Unsupported, WHY));
    0
}
