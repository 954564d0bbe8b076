//! Slots and tokens.

#![allow(non_snake_case)]

use std::ffi::c_void;

use hsmux_token::ck::*;

use super::guard::export;
use super::pointer::{Output, give};
use crate::library::with;
use crate::rv::Rv;
use crate::slot::{SLOT, check};

export! {
    fn C_GetSlotList(present: CK_BBOOL, slots: *mut CK_SLOT_ID, count: *mut CK_ULONG) {
        with(|app| {
            let mut out = Output::new(slots, count)?;
            if present == CK_FALSE || app.is_present() {
                out.put(&[SLOT])
            } else {
                out.put(&[])
            }
        })
    }

    fn C_GetSlotInfo(slot: CK_SLOT_ID, info: *mut CK_SLOT_INFO) {
        with(|app| {
            check(slot)?;
            give(info, app.slot_info())
        })
    }

    fn C_GetTokenInfo(slot: CK_SLOT_ID, info: *mut CK_TOKEN_INFO) {
        with(|app| {
            check(slot)?;
            give(info, app.token_info()?)
        })
    }

    fn C_GetMechanismList(
        slot: CK_SLOT_ID,
        mechanisms: *mut CK_MECHANISM_TYPE,
        count: *mut CK_ULONG,
    ) {
        with(|app| {
            check(slot)?;
            Output::new(mechanisms, count)?.put(&app.mechanism_list()?)
        })
    }

    fn C_GetMechanismInfo(
        slot: CK_SLOT_ID,
        mechanism: CK_MECHANISM_TYPE,
        info: *mut CK_MECHANISM_INFO,
    ) {
        with(|app| {
            check(slot)?;
            give(info, app.mechanism_info(mechanism)?)
        })
    }

    /// Tokens are initialised by `hsmux token init`.
    fn C_InitToken(slot: CK_SLOT_ID, _pin: *mut u8, _pin_len: CK_ULONG, _label: *mut u8) {
        with(|_| {
            check(slot)?;
            Err(Rv(CKR_FUNCTION_NOT_SUPPORTED))
        })
    }

    /// Never blocks: only a question to the daemon shows that it comes or goes.
    fn C_WaitForSlotEvent(flags: CK_FLAGS, _slot: *mut CK_SLOT_ID, reserved: *mut c_void) {
        with(|_| match flags & CKF_DONT_BLOCK {
            _ if !reserved.is_null() => Err(Rv(CKR_ARGUMENTS_BAD)),
            0 => Err(Rv(CKR_FUNCTION_NOT_SUPPORTED)),
            _ => Err(Rv(CKR_NO_EVENT)),
        })
    }
}
