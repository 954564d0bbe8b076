//! Sessions, logins and PINs.

use hsmux_token::ck::*;

use super::{code, input, put};
use crate::control::{ControlFile, When};
use crate::device::hang_while;
use crate::world::World;

pub unsafe extern "C" fn C_OpenSession(
    slot: CK_SLOT_ID,
    _: CK_FLAGS,
    _: *mut std::ffi::c_void,
    _: CK_NOTIFY,
    place: *mut CK_SESSION_HANDLE,
) -> CK_RV {
    let open = || {
        let control = ControlFile::now()?;
        let session = World::with(|world| world.open(slot, control.token(slot)?))?;
        // SAFETY: the standard's promise.
        unsafe { put(place, session) }
    };
    code(open())
}

pub extern "C" fn C_CloseSession(session: CK_SESSION_HANDLE) -> CK_RV {
    code(World::with(|world| world.close(session)))
}

pub extern "C" fn C_CloseAllSessions(slot: CK_SLOT_ID) -> CK_RV {
    code(World::with(|world| {
        world.close_all(slot);
        Ok(())
    }))
}

pub unsafe extern "C" fn C_GetSessionInfo(
    session: CK_SESSION_HANDLE,
    info: *mut CK_SESSION_INFO,
) -> CK_RV {
    let get = || {
        let (slot, user) = World::with(|world| {
            let slot = world.session(session)?.slot;
            Ok((slot, world.user(slot)))
        })?;
        let value = CK_SESSION_INFO {
            slotID: slot,
            state: match user {
                Some(CKU_SO) => CKS_RW_SO_FUNCTIONS,
                Some(_) => CKS_RW_USER_FUNCTIONS,
                None => CKS_RW_PUBLIC_SESSION,
            },
            flags: CKF_SERIAL_SESSION | CKF_RW_SESSION,
            ulDeviceError: 0,
        };
        // SAFETY: the standard's promise.
        unsafe { put(info, value) }
    };
    code(get())
}

pub unsafe extern "C" fn C_Login(
    session: CK_SESSION_HANDLE,
    user: CK_USER_TYPE,
    pin: *mut u8,
    len: CK_ULONG,
) -> CK_RV {
    let login = || {
        let control = ControlFile::now()?;
        let (slot, before) = World::with(|world| {
            let slot = world.session(session)?.slot;
            Ok((slot, world.user(slot)))
        })?;
        let token = control.token(slot).map_err(|_| CKR_DEVICE_REMOVED)?;
        match before {
            Some(same) if same == user => return Err(CKR_USER_ALREADY_LOGGED_IN),
            Some(_) => return Err(CKR_USER_ANOTHER_ALREADY_LOGGED_IN),
            None => {}
        }
        // SAFETY: the standard's promise.
        let shown = token.show_pin("C_Login", user, unsafe { input(pin, len) }?);
        if token.crash_in_login {
            std::process::abort();
        }
        hang_while(slot, |c| c.hang_in_login);
        if token.login_error != CKR_OK {
            return Err(token.login_error);
        }
        shown?;
        World::with(|world| {
            world.set_user(slot, Some(user));
            Ok(())
        })
    };
    code(login())
}

pub extern "C" fn C_Logout(session: CK_SESSION_HANDLE) -> CK_RV {
    code(World::with(|world| {
        let slot = world.session(session)?.slot;
        world.user(slot).ok_or(CKR_USER_NOT_LOGGED_IN)?;
        world.set_user(slot, None);
        Ok(())
    }))
}

pub unsafe extern "C" fn C_InitPIN(
    session: CK_SESSION_HANDLE,
    pin: *mut u8,
    len: CK_ULONG,
) -> CK_RV {
    let init = || {
        let control = ControlFile::now()?;
        let (slot, user) = World::with(|world| {
            let slot = world.session(session)?.slot;
            Ok((slot, world.user(slot)))
        })?;
        if user != Some(CKU_SO) {
            return Err(CKR_USER_NOT_LOGGED_IN);
        }
        // SAFETY: the standard's promise.
        control
            .token(slot)?
            .set_user_pin(unsafe { input(pin, len) }?)
    };
    code(init())
}

pub unsafe extern "C" fn C_SetPIN(
    session: CK_SESSION_HANDLE,
    old: *mut u8,
    old_len: CK_ULONG,
    new: *mut u8,
    new_len: CK_ULONG,
) -> CK_RV {
    let set = || {
        let control = ControlFile::now()?;
        let slot = World::with(|world| Ok(world.session(session)?.slot))?;
        let token = control.token(slot).map_err(|_| CKR_DEVICE_REMOVED)?;
        // SAFETY: the standard's promise.
        let (old, new) = unsafe { (input(old, old_len)?, input(new, new_len)?) };
        token.show_pin("C_SetPIN", CKU_USER, old)?;
        if token.crash_in_set_pin == Some(When::Before) {
            std::process::abort();
        }
        hang_while(slot, |c| c.hang_in_set_pin == Some(When::Before));
        if token.set_pin_error != CKR_OK {
            return Err(token.set_pin_error);
        }
        token.set_user_pin(new)?;
        if token.crash_in_set_pin == Some(When::After) {
            std::process::abort();
        }
        hang_while(slot, |c| c.hang_in_set_pin == Some(When::After));
        Ok(())
    };
    code(set())
}
