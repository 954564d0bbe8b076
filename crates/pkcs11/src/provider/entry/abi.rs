//! The types that both sides have (openssl/core.h).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null;

/// OSSL_CALLBACK: takes what has been made of something.
pub type Callback = unsafe extern "C" fn(*const Param, *mut c_void) -> c_int;

/// OSSL_CORE_HANDLE and OSSL_CORE_BIO: OpenSSL's own, which only it looks into.
pub type Opaque = c_void;

/// OSSL_DISPATCH: a function with its number; a table of them ends with number 0.
#[repr(C)]
pub struct Dispatch {
    pub id: c_int,
    pub function: *const (),
}

/// OSSL_ALGORITHM: a table of them ends without a name.
#[repr(C)]
pub struct Algorithm {
    names: *const c_char,
    properties: *const c_char,
    functions: *const Dispatch,
    description: *const c_char,
}

/// OSSL_ITEM: a number with its text; a table of them ends with number 0.
#[repr(C)]
pub struct OsslItem {
    pub id: c_uint,
    pub text: *const c_char,
}

/// OSSL_PARAM: an array of them ends without a key.
#[repr(C)]
pub struct Param {
    pub key: *const c_char,
    pub kind: c_uint,
    pub data: *mut c_void,
    pub size: usize,
    pub returned: usize,
}

// SAFETY: statics of these types are never written to, and what they point to are functions and other statics.
unsafe impl Sync for Dispatch {}
// SAFETY: as above.
unsafe impl Sync for Algorithm {}
// SAFETY: as above.
unsafe impl Sync for OsslItem {}
// SAFETY: as above; those that are written to are OpenSSL's, and of one call.
unsafe impl Sync for Param {}

/// OSSL_PARAM_INTEGER and its like.
pub const INTEGER: c_uint = 1;
pub const UNSIGNED: c_uint = 2;
pub const UTF8: c_uint = 4;
pub const OCTETS: c_uint = 5;
pub const UTF8_PTR: c_uint = 6;

/// OSSL_PARAM_UNMODIFIED: the parameter has no value.
const UNMODIFIED: usize = usize::MAX;

impl Dispatch {
    /// The end of a table.
    pub const END: Self = Self::new(0, null());

    /// A row.
    pub const fn new(id: c_int, function: *const ()) -> Self {
        Self { id, function }
    }
}

impl Algorithm {
    /// The end of a table.
    pub const END: Self = Self {
        names: null(),
        properties: null(),
        functions: null(),
        description: null(),
    };

    /// A row; the names are separated by colons.
    pub const fn new(
        names: &'static CStr,
        properties: &'static CStr,
        functions: &'static [Dispatch],
    ) -> Self {
        Self {
            names: names.as_ptr(),
            properties: properties.as_ptr(),
            functions: functions.as_ptr(),
            description: null(),
        }
    }
}

impl Param {
    /// The end of an array.
    pub const END: Self = Self {
        key: null(),
        kind: 0,
        data: std::ptr::null_mut(),
        size: 0,
        returned: 0,
    };

    /// A parameter without a value.
    pub const fn named(key: &'static CStr, kind: c_uint) -> Self {
        Self::new(key, kind, std::ptr::null_mut(), 0)
    }

    /// A value or a place for one.
    pub const fn new(key: &'static CStr, kind: c_uint, data: *mut c_void, size: usize) -> Self {
        Self {
            key: key.as_ptr(),
            kind,
            data,
            size,
            returned: UNMODIFIED,
        }
    }
}
