//! Sessions and logins.

#![allow(non_snake_case)]

use std::ffi::c_void;

use hsmux_token::Secret;
use hsmux_token::ck::*;

use super::guard::export;
use super::pointer::{check, give, slice};
use crate::library::{in_session, with};
use crate::rv::{Result, Rv};
use crate::slot;

export! {
    fn C_OpenSession(
        slot: CK_SLOT_ID,
        flags: CK_FLAGS,
        _application: *mut c_void,
        _notify: CK_NOTIFY,
        session: *mut CK_SESSION_HANDLE,
    ) {
        with(|app| {
            slot::check(slot)?;
            check(session)?;
            give(session, app.open(flags)?)
        })
    }

    fn C_CloseSession(session: CK_SESSION_HANDLE) {
        with(|app| app.close(session))
    }

    fn C_CloseAllSessions(slot: CK_SLOT_ID) {
        with(|app| {
            slot::check(slot)?;
            app.close_all();
            Ok(())
        })
    }

    fn C_GetSessionInfo(session: CK_SESSION_HANDLE, info: *mut CK_SESSION_INFO) {
        with(|app| give(info, app.session_info(session)?))
    }

    /// Refused: no other session could continue an operation.
    fn C_GetOperationState(session: CK_SESSION_HANDLE, _state: *mut u8, len: *mut CK_ULONG) {
        with(|app| {
            let session = app.sessions.get(session)?;
            check(len)?;
            if session.state().active.is_empty() {
                Err(Rv(CKR_OPERATION_NOT_INITIALIZED))
            } else {
                Err(Rv(CKR_STATE_UNSAVEABLE))
            }
        })
    }

    fn C_SetOperationState(
        session: CK_SESSION_HANDLE,
        state: *mut u8,
        _len: CK_ULONG,
        _encryption_key: CK_OBJECT_HANDLE,
        _authentication_key: CK_OBJECT_HANDLE,
    ) {
        in_session(session, |_| {
            check(state)?;
            Err(Rv(CKR_SAVED_STATE_INVALID))
        })
    }

    fn C_Login(session: CK_SESSION_HANDLE, user: CK_USER_TYPE, pin: *mut u8, len: CK_ULONG) {
        in_session(session, |app| app.login(session, user, secret(pin, len)?))
    }

    /// There are no names of users: what has one is not known.
    fn C_LoginUser(
        session: CK_SESSION_HANDLE,
        user: CK_USER_TYPE,
        pin: *mut u8,
        len: CK_ULONG,
        _name: *mut u8,
        name_len: CK_ULONG,
    ) {
        in_session(session, |app| {
            if name_len != 0 {
                return Err(Rv(CKR_USER_TYPE_INVALID));
            }
            app.login(session, user, secret(pin, len)?)
        })
    }

    fn C_Logout(session: CK_SESSION_HANDLE) {
        with(|app| app.logout(session))
    }

    /// The pool's PIN is set by who runs the daemon.
    fn C_InitPIN(session: CK_SESSION_HANDLE, _pin: *mut u8, _len: CK_ULONG) {
        in_session(session, |_| Err(Rv(CKR_FUNCTION_NOT_SUPPORTED)))
    }

    /// PINs are changed by `hsmux pin rotate`.
    fn C_SetPIN(
        session: CK_SESSION_HANDLE,
        _old: *mut u8,
        _old_len: CK_ULONG,
        _new: *mut u8,
        _new_len: CK_ULONG,
    ) {
        in_session(session, |_| Err(Rv(CKR_FUNCTION_NOT_SUPPORTED)))
    }

    fn C_SessionCancel(session: CK_SESSION_HANDLE, flags: CK_FLAGS) {
        with(|app| app.cancel(session, flags))
    }

    fn C_GetFunctionStatus(session: CK_SESSION_HANDLE) {
        in_session(session, |_| Err(Rv(CKR_FUNCTION_NOT_PARALLEL)))
    }

    fn C_CancelFunction(session: CK_SESSION_HANDLE) {
        in_session(session, |_| Err(Rv(CKR_FUNCTION_NOT_PARALLEL)))
    }
}

unsafe fn secret(pin: *const u8, len: CK_ULONG) -> Result<Secret> {
    // SAFETY: the caller's contract.
    Ok(Secret::new(unsafe { slice(pin, len)? }.to_vec()))
}
