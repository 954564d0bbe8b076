//! The module, its slots and its tokens.

use std::time::Duration;

use hsmux_token::ck::*;
use parking_lot::Mutex;

use super::nothing::NOTHING;
use super::{code, padded, put, put_list};
use crate::control::ControlFile;
use crate::world::World;

/// The functions of the stand-in. Others are null pointers, which callers must expect of any module.
#[unsafe(no_mangle)]
pub extern "C" fn C_GetFunctionList(list: *mut *mut CK_FUNCTION_LIST) -> CK_RV {
    static mut LIST: CK_FUNCTION_LIST = CK_FUNCTION_LIST {
        version: CK_VERSION {
            major: 2,
            minor: 40,
        },
        C_Initialize: Some(C_Initialize),
        C_Finalize: Some(C_Finalize),
        C_GetInfo: Some(C_GetInfo),
        C_GetFunctionList: Some(C_GetFunctionList),
        C_GetSlotList: Some(C_GetSlotList),
        C_GetSlotInfo: Some(C_GetSlotInfo),
        C_GetTokenInfo: Some(C_GetTokenInfo),
        C_GetMechanismList: Some(C_GetMechanismList),
        C_GetMechanismInfo: Some(C_GetMechanismInfo),
        C_OpenSession: Some(super::sessions::C_OpenSession),
        C_CloseSession: Some(super::sessions::C_CloseSession),
        C_CloseAllSessions: Some(super::sessions::C_CloseAllSessions),
        C_GetSessionInfo: Some(super::sessions::C_GetSessionInfo),
        C_Login: Some(super::sessions::C_Login),
        C_Logout: Some(super::sessions::C_Logout),
        C_InitPIN: Some(super::sessions::C_InitPIN),
        C_SetPIN: Some(super::sessions::C_SetPIN),
        C_FindObjectsInit: Some(super::objects::C_FindObjectsInit),
        C_FindObjects: Some(super::objects::C_FindObjects),
        C_FindObjectsFinal: Some(super::objects::C_FindObjectsFinal),
        C_GetAttributeValue: Some(super::objects::C_GetAttributeValue),
        C_SignInit: Some(super::keys::C_SignInit),
        C_Sign: Some(super::keys::C_Sign),
        C_VerifyInit: Some(super::keys::C_VerifyInit),
        C_Verify: Some(super::keys::C_Verify),
        C_EncryptInit: Some(super::keys::C_EncryptInit),
        C_Encrypt: Some(super::keys::C_Encrypt),
        C_DecryptInit: Some(super::keys::C_DecryptInit),
        C_Decrypt: Some(super::keys::C_Decrypt),
        C_GenerateRandom: Some(super::keys::C_GenerateRandom),
        ..NOTHING
    };
    // An unreadable file is reported by the other calls.
    let forward = ControlFile::now()
        .ok()
        .and_then(|control| control.forward.clone());
    // Nobody writes to the list, which C takes without const.
    let own = || Ok(&raw mut LIST);
    let chosen = forward.map_or_else(own, |module| super::forward::list(&module));
    // SAFETY: the standard's promise.
    code(chosen.and_then(|chosen| unsafe { put(list, chosen) }))
}

extern "C" fn C_Initialize(_: *mut std::ffi::c_void) -> CK_RV {
    code(begin())
}

/// Applies the faults of C_Initialize, then creates a new world.
pub fn begin() -> Result<(), CK_RV> {
    let control = ControlFile::now()?;
    if control.crash_in_initialize {
        std::process::abort();
    }
    while ControlFile::now()?.hang_in_initialize {
        std::thread::sleep(Duration::from_millis(5));
    }
    crate::reach::try_all(&control);
    match control.initialize_error {
        CKR_OK => World::begin(),
        code => Err(code),
    }
}

extern "C" fn C_Finalize(_: *mut std::ffi::c_void) -> CK_RV {
    code(World::end())
}

unsafe extern "C" fn C_GetInfo(info: *mut CK_INFO) -> CK_RV {
    let value = CK_INFO {
        cryptokiVersion: CK_VERSION {
            major: 2,
            minor: 40,
        },
        manufacturerID: padded("hsmux"),
        flags: 0,
        libraryDescription: padded("stand-in for tests"),
        libraryVersion: CK_VERSION { major: 1, minor: 0 },
    };
    // SAFETY: the standard's promise.
    code(unsafe { put(info, value) })
}

unsafe extern "C" fn C_GetSlotList(
    _: CK_BBOOL,
    slots: *mut CK_SLOT_ID,
    len: *mut CK_ULONG,
) -> CK_RV {
    let list = || {
        World::with(|_| Ok(()))?;
        let control = ControlFile::now()?;
        let _turn = control.slots_alone.then(alone).transpose()?;
        let present = (0..control.tokens.len() as CK_SLOT_ID).filter(|s| control.token(*s).is_ok());
        // SAFETY: the standard's promise.
        unsafe { put_list(&present.collect::<Vec<_>>(), slots, len) }
    };
    code(list())
}

/// Takes a millisecond; an error while another thread is here.
fn alone() -> Result<impl Drop, CK_RV> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.try_lock().ok_or(CKR_GENERAL_ERROR)?;
    std::thread::sleep(Duration::from_millis(1));
    Ok(turn)
}

unsafe extern "C" fn C_GetSlotInfo(slot: CK_SLOT_ID, info: *mut CK_SLOT_INFO) -> CK_RV {
    let value = CK_SLOT_INFO {
        slotDescription: padded(&format!("stand-in slot {slot}")),
        manufacturerID: padded("hsmux"),
        flags: CKF_TOKEN_PRESENT | CKF_REMOVABLE_DEVICE,
        ..CK_SLOT_INFO::default()
    };
    // SAFETY: the standard's promise.
    code(unsafe { put(info, value) })
}

unsafe extern "C" fn C_GetTokenInfo(slot: CK_SLOT_ID, info: *mut CK_TOKEN_INFO) -> CK_RV {
    let get = || {
        World::with(|_| Ok(()))?;
        let control = ControlFile::now()?;
        let token = control.token(slot)?;
        let value = CK_TOKEN_INFO {
            label: padded(&token.label),
            manufacturerID: padded(match &*token.manufacturer {
                "" => "hsmux",
                name => name,
            }),
            model: padded("stand-in"),
            serialNumber: padded(&token.serial),
            flags: CKF_RNG
                | CKF_LOGIN_REQUIRED
                | CKF_USER_PIN_INITIALIZED
                | CKF_TOKEN_INITIALIZED
                | token.counter_flags(),
            ulMaxSessionCount: token.sessions as CK_ULONG,
            ulMinPinLen: 4,
            ulMaxPinLen: 64,
            ..CK_TOKEN_INFO::default()
        };
        // SAFETY: the standard's promise.
        unsafe { put(info, value) }
    };
    code(get())
}

/// A vendor-defined number for CKM_ECDSA_SHA256, which also claims to wrap and derive.
pub const CKM_VENDORS_ECDSA_SHA256: CK_MECHANISM_TYPE = CKM_VENDOR_DEFINED + 0x11;

/// Mechanisms with the bits of their keys, and their uses.
const MECHANISMS: [(CK_MECHANISM_TYPE, CK_ULONG, CK_FLAGS); 9] = [
    (CKM_RSA_PKCS, 2048, CKF_SIGN | CKF_DECRYPT),
    (CKM_SHA256_RSA_PKCS, 2048, CKF_SIGN),
    (CKM_ECDSA, 256, CKF_SIGN),
    (CKM_ECDSA_SHA256, 256, CKF_SIGN),
    (CKM_AES_ECB, 32, CKF_ENCRYPT | CKF_DECRYPT),
    (CKM_AES_CBC, 32, CKF_ENCRYPT | CKF_DECRYPT),
    (CKM_AES_CBC_PAD, 32, CKF_ENCRYPT | CKF_DECRYPT),
    (CKM_ML_DSA, CKP_ML_DSA_65, CKF_SIGN | CKF_VERIFY),
    (
        CKM_VENDORS_ECDSA_SHA256,
        256,
        CKF_SIGN | CKF_VERIFY | CKF_WRAP | CKF_DERIVE | CKF_GENERATE_KEY_PAIR,
    ),
];

unsafe extern "C" fn C_GetMechanismList(
    slot: CK_SLOT_ID,
    place: *mut CK_MECHANISM_TYPE,
    len: *mut CK_ULONG,
) -> CK_RV {
    let list = || {
        let control = ControlFile::now()?;
        let mut list = MECHANISMS.map(|m| m.0).to_vec();
        let token = control.token(slot)?;
        list.retain(|mechanism| !token.lacks.contains(mechanism));
        list.retain(|mechanism| *mechanism != CKM_ML_DSA || token.holds("ml-dsa"));
        // SAFETY: the standard's promise.
        unsafe { put_list(&list, place, len) }
    };
    code(list())
}

unsafe extern "C" fn C_GetMechanismInfo(
    _: CK_SLOT_ID,
    kind: CK_MECHANISM_TYPE,
    info: *mut CK_MECHANISM_INFO,
) -> CK_RV {
    let found = MECHANISMS.iter().find(|m| m.0 == kind);
    let Some((_, size, flags)) = found else {
        return CKR_MECHANISM_INVALID;
    };
    let value = CK_MECHANISM_INFO {
        ulMinKeySize: *size,
        ulMaxKeySize: *size,
        flags: *flags | CKF_HW,
    };
    // SAFETY: the standard's promise.
    code(unsafe { put(info, value) })
}
