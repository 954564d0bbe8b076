//! What stands around every function that OpenSSL calls.

use std::ffi::c_int;

/// What a function says that could not do what it was asked.
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
                // SAFETY: OpenSSL keeps the contract of provider-base(7) and its kin: each pointer is null, or valid
                // until the call returns. Contexts are those that this library has given, for one thread at a time;
                // keys, too, for any number of threads, which only read them.
                unsafe { $body }
            })
        }
    )*};
}

pub(super) use callbacks;
