//! The function lists, and how they are asked for: C_GetFunctionList, C_GetInterfaceList, C_GetInterface.

#![allow(non_snake_case)]

use std::ffi::{CStr, c_void};

use hsmux_token::ck::*;

use super::general::get_info_3_0;
use super::guard::export;
use super::pointer::{Output, give};
use super::*;
use crate::rv::Rv;

/// A list with the functions of 2.40, some under a name of their own, and those of `more`.
macro_rules! list {
    ($list:ident, $major:literal, $minor:literal, $get_info:path; $($more:ident)*) => {
        list!(@ $list, $major, $minor, $get_info;
            C_Initialize C_Finalize C_GetFunctionList C_GetSlotList C_GetSlotInfo C_GetTokenInfo
            C_GetMechanismList C_GetMechanismInfo C_InitToken C_InitPIN C_SetPIN C_OpenSession
            C_CloseSession C_CloseAllSessions C_GetSessionInfo C_GetOperationState
            C_SetOperationState C_Login C_Logout C_CreateObject C_CopyObject C_DestroyObject
            C_GetObjectSize C_GetAttributeValue C_SetAttributeValue C_FindObjectsInit C_FindObjects
            C_FindObjectsFinal C_EncryptInit C_Encrypt C_EncryptUpdate C_EncryptFinal C_DecryptInit
            C_Decrypt C_DecryptUpdate C_DecryptFinal C_DigestInit C_Digest C_DigestUpdate
            C_DigestKey C_DigestFinal C_SignInit C_Sign C_SignUpdate C_SignFinal C_SignRecoverInit
            C_SignRecover C_VerifyInit C_Verify C_VerifyUpdate C_VerifyFinal C_VerifyRecoverInit
            C_VerifyRecover C_DigestEncryptUpdate C_DecryptDigestUpdate C_SignEncryptUpdate
            C_DecryptVerifyUpdate C_GenerateKey C_GenerateKeyPair C_WrapKey C_UnwrapKey C_DeriveKey
            C_SeedRandom C_GenerateRandom C_GetFunctionStatus C_CancelFunction C_WaitForSlotEvent
            $($more)*)
    };
    (@ $list:ident, $major:literal, $minor:literal, $get_info:path; $($name:ident)*) => {
        $list {
            version: CK_VERSION { major: $major, minor: $minor },
            C_GetInfo: Some($get_info),
            $($name: Some($name),)*
        }
    };
}

static LIST_2_40: CK_FUNCTION_LIST = list!(CK_FUNCTION_LIST, 2, 40, C_GetInfo;);

static LIST_3_0: CK_FUNCTION_LIST_3_0 = list!(CK_FUNCTION_LIST_3_0, 3, 0, get_info_3_0;
    C_GetInterfaceList C_GetInterface C_LoginUser C_SessionCancel C_MessageEncryptInit
    C_EncryptMessage C_EncryptMessageBegin C_EncryptMessageNext C_MessageEncryptFinal
    C_MessageDecryptInit C_DecryptMessage C_DecryptMessageBegin C_DecryptMessageNext
    C_MessageDecryptFinal C_MessageSignInit C_SignMessage C_SignMessageBegin C_SignMessageNext
    C_MessageSignFinal C_MessageVerifyInit C_VerifyMessage C_VerifyMessageBegin
    C_VerifyMessageNext C_MessageVerifyFinal);

const NAME: &CStr = c"PKCS 11";

/// A table that is never written to.
struct Interfaces([CK_INTERFACE; 2]);

// SAFETY: the pointers are to statics, and the application has no right to write through them.
unsafe impl Sync for Interfaces {}

/// The newest first: it is the default. Neither claims CKF_INTERFACE_FORK_SAFE, for a child has to
/// initialise anew.
static INTERFACES: Interfaces = Interfaces([
    interface((&raw const LIST_3_0).cast()),
    interface((&raw const LIST_2_40).cast()),
]);

const fn interface(list: *const c_void) -> CK_INTERFACE {
    CK_INTERFACE {
        pInterfaceName: NAME.as_ptr().cast_mut().cast(),
        pFunctionList: list.cast_mut(),
        flags: 0,
    }
}

export! {
    /// Works before C_Initialize.
    fn C_GetFunctionList(list: *mut *mut CK_FUNCTION_LIST) {
        give(list, (&raw const LIST_2_40).cast_mut())
    }

    /// Works before C_Initialize.
    fn C_GetInterfaceList(interfaces: *mut CK_INTERFACE, count: *mut CK_ULONG) {
        Output::new(interfaces, count)?.put(&INTERFACES.0)
    }

    /// Works before C_Initialize. Without a name or version it gives the default.
    fn C_GetInterface(
        name: *mut u8,
        version: *mut CK_VERSION,
        interface: *mut *mut CK_INTERFACE,
        flags: CK_FLAGS,
    ) {
        let known = name.is_null() || CStr::from_ptr(name.cast()) == NAME;
        let version = version.as_ref();
        let fits = |one: &&CK_INTERFACE| {
            // Every function list begins with its version.
            let own = &*one.pFunctionList.cast::<CK_VERSION>();
            version.is_none_or(|wanted| (wanted.major, wanted.minor) == (own.major, own.minor))
                && one.flags & flags == flags
        };
        let found = INTERFACES.0.iter().find(fits).filter(|_| known);
        let found = found.ok_or(Rv(CKR_ARGUMENTS_BAD))?;
        give(interface, (&raw const *found).cast_mut())
    }
}
