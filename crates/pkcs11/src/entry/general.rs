//! C_Initialize, C_Finalize, C_GetInfo.

#![allow(non_snake_case)]

use std::ffi::c_void;

use hsmux_token::ck::*;

use super::guard::export;
use super::pointer::give;
use crate::library::{finalise, initialise, with};
use crate::rv::{Result, Rv};
use crate::setup::{self, PoolLocation};
use crate::slot::library_info;

const V2_40: CK_VERSION = CK_VERSION {
    major: 2,
    minor: 40,
};
const V3_0: CK_VERSION = CK_VERSION { major: 3, minor: 0 };

export! {
    fn C_Initialize(arguments: *mut c_void) {
        let threads = may_start_threads(arguments.cast_const().cast())?;
        initialise(|| setup::backend(&PoolLocation::default(), threads))
    }

    fn C_Finalize(reserved: *mut c_void) {
        if !reserved.is_null() {
            return Err(Rv(CKR_ARGUMENTS_BAD));
        }
        finalise()
    }

    fn C_GetInfo(info: *mut CK_INFO) {
        with(|_| give(info, library_info(V2_40)))
    }
}

/// C_GetInfo of the 3.0 interface, which is exported in its list only.
///
/// # Safety
/// As of C_GetInfo.
pub(super) unsafe extern "C" fn get_info_3_0(info: *mut CK_INFO) -> CK_RV {
    // SAFETY: the caller's contract.
    super::guard::guard(|| with(|_| unsafe { give(info, library_info(V3_0)) }))
}

/// CK_C_INITIALIZE_ARGS (PKCS#11 3.0, section 3.7): whether the library may start threads.
///
/// Locks are the system's own here: an application that offers its own and no others is refused.
unsafe fn may_start_threads(arguments: *const CK_C_INITIALIZE_ARGS) -> Result<bool> {
    // SAFETY: null or valid by the contract of C_Initialize.
    let Some(arguments) = (unsafe { arguments.as_ref() }) else {
        return Ok(true);
    };
    let given = [
        arguments.CreateMutex.is_some(),
        arguments.DestroyMutex.is_some(),
        arguments.LockMutex.is_some(),
        arguments.UnlockMutex.is_some(),
    ];
    let all = given.iter().all(|given| *given);
    let some = given.iter().any(|given| *given);
    if !arguments.pReserved.is_null() || some != all {
        return Err(Rv(CKR_ARGUMENTS_BAD));
    }
    if all && arguments.flags & CKF_OS_LOCKING_OK == 0 {
        return Err(Rv(CKR_CANT_LOCK));
    }
    Ok(arguments.flags & CKF_LIBRARY_CANT_CREATE_OS_THREADS == 0)
}
