//! The guard around every exported function.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hsmux_token::ck::{CK_RV, CKR_GENERAL_ERROR, CKR_OK};

use crate::rv::{Result, Rv};

/// Runs a call's body and makes a CK_RV of what comes of it.
pub fn guard(body: impl FnOnce() -> Result) -> CK_RV {
    caught(CKR_GENERAL_ERROR, || match body() {
        Ok(()) => CKR_OK,
        Err(Rv(code)) => code,
    })
}

/// Runs a body; a panic stays on this side of the border, and is `otherwise` on the other.
pub fn caught<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// Exports C_ functions: each has the standard's signature and a body that gives a [`Result`].
macro_rules! export {
    ($($(#[$note:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        $(#[$note])*
        ///
        /// # Safety
        /// PKCS#11's contract: each pointer is null or valid for the length that comes with it.
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe)]
        pub unsafe extern "C" fn $name($($arg: $kind),*) -> CK_RV {
            // SAFETY: the caller keeps the contract above, and bodies pass pointers on with their own lengths.
            $crate::entry::guard::guard(move || unsafe { $body })
        }
    )*};
}

pub(super) use export;

#[cfg(test)]
mod tests {
    use hsmux_token::ck::{CK_RV, CKR_GENERAL_ERROR, CKR_KEY_HANDLE_INVALID, CKR_OK};

    use super::guard;
    use crate::rv::Rv;

    export! {
        fn hsmux_test_panic() {
            panic!("a mistake of ours")
        }
    }

    #[test]
    fn a_panic_does_not_cross_the_border() {
        // SAFETY: it takes no pointers.
        let code = unsafe { hsmux_test_panic() };
        assert_eq!(code, CKR_GENERAL_ERROR);
    }

    #[test]
    fn a_code_passes() {
        let refused = || Err(Rv(CKR_KEY_HANDLE_INVALID));
        assert_eq!(guard(refused), CKR_KEY_HANDLE_INVALID);
        assert_eq!(guard(|| Ok(())), CKR_OK);
    }
}
