//! The guard around every function that OpenSSL calls.

use std::ffi::c_int;

/// The return value of a function that has failed.
pub trait FailureValue {
    /// 0 or null.
    const FAILURE: Self;
}

impl FailureValue for () {
    const FAILURE: Self = ();
}

impl FailureValue for c_int {
    const FAILURE: Self = 0;
}

impl<T> FailureValue for *const T {
    const FAILURE: Self = std::ptr::null();
}

impl<T> FailureValue for *mut T {
    const FAILURE: Self = std::ptr::null_mut();
}

/// Functions for OpenSSL's tables; a panic stays on this side of the border.
macro_rules! callbacks {
    ($($(#[$note:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $(-> $answer:ty)? $body:block)*) => {$(
        $(#[$note])*
        #[allow(unused_unsafe)]
        unsafe extern "C" fn $name($($arg: $kind),*) $(-> $answer)? {
            $crate::entry::caught($crate::provider::entry::guard::FailureValue::FAILURE, move || {
                // SAFETY: by provider-base(7), each pointer is null, or valid until the call returns. Contexts are
                // this library's, one thread at a time; keys are shared and only read.
                unsafe { $body }
            })
        }
    )*};
}

pub(super) use callbacks;
