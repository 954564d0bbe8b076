//! Every function of the lists, called alike: with a handle where one comes first, and with zeros.

use std::mem::zeroed;
use std::ptr::null_mut;

use hsmux_pkcs11::entry::*;
use hsmux_token::ck::*;

use crate::calls::{Handle, ok};

/// A function of a list, by its name.
pub struct Function {
    pub name: &'static str,
    call: Box<dyn Fn(Handle) -> CK_RV>,
}

impl Function {
    /// With this as its session or slot; the rest is null pointers, no lengths and no flags.
    pub fn on(&self, handle: Handle) -> CK_RV {
        (self.call)(handle)
    }
}

/// The calls that may come first.
trait First {
    fn first(handle: Handle) -> Self;
}

impl First for CK_ULONG {
    fn first(handle: Handle) -> Self {
        handle
    }
}

impl First for CK_BBOOL {
    fn first(_: Handle) -> Self {
        CK_FALSE
    }
}

impl<T> First for *mut T {
    fn first(_: Handle) -> Self {
        null_mut()
    }
}

trait Callable {
    fn on(self, handle: Handle) -> CK_RV;
}

macro_rules! callable {
    () => {};
    ($last:ident $($more:ident)*) => {
        impl<A: First, $($more),*> Callable for unsafe extern "C" fn(A, $($more),*) -> CK_RV {
            fn on(self, handle: Handle) -> CK_RV {
                // SAFETY: PKCS#11 has numbers, pointers and CK_NOTIFY, of which all may be zero.
                unsafe { self(A::first(handle), $(zeroed::<$more>()),*) }
            }
        }
        callable!($($more)*);
    };
}

callable!(B C D E F G H I J);

macro_rules! functions {
    ($list:ident: $($name:ident)*) => {{
        // SAFETY: the module's own list, which is never written to.
        let list = unsafe { &*$list };
        let functions = vec![$({
            let function = list.$name.expect(stringify!($name));
            Function {
                name: stringify!($name),
                call: Box::new(move |handle| function.on(handle)),
            }
        }),*];
        let words = size_of_val(list) / size_of::<usize>();
        assert_eq!(functions.len(), words - 1, "one for each word but the version");
        functions
    }};
}

macro_rules! with_2_40 {
    ($list:ident: $($more:ident)*) => {
        functions!($list:
            C_Initialize C_Finalize C_GetInfo C_GetFunctionList C_GetSlotList C_GetSlotInfo
            C_GetTokenInfo C_GetMechanismList C_GetMechanismInfo C_InitToken C_InitPIN C_SetPIN
            C_OpenSession C_CloseSession C_CloseAllSessions C_GetSessionInfo C_GetOperationState
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
}

/// The list of C_GetFunctionList.
pub fn of_2_40() -> Vec<Function> {
    let mut list = null_mut();
    ok(unsafe { C_GetFunctionList(&mut list) }).unwrap();
    with_2_40!(list:)
}

/// The list of the newest interface.
pub fn of_3_0() -> Vec<Function> {
    let mut interface = null_mut();
    ok(unsafe { C_GetInterface(null_mut(), null_mut(), &mut interface, 0) }).unwrap();
    let list = unsafe { (*interface).pFunctionList.cast::<CK_FUNCTION_LIST_3_0>() };
    with_2_40!(list:
        C_GetInterfaceList C_GetInterface C_LoginUser C_SessionCancel C_MessageEncryptInit
        C_EncryptMessage C_EncryptMessageBegin C_EncryptMessageNext C_MessageEncryptFinal
        C_MessageDecryptInit C_DecryptMessage C_DecryptMessageBegin C_DecryptMessageNext
        C_MessageDecryptFinal C_MessageSignInit C_SignMessage C_SignMessageBegin C_SignMessageNext
        C_MessageSignFinal C_MessageVerifyInit C_VerifyMessage C_VerifyMessageBegin
        C_VerifyMessageNext C_MessageVerifyFinal)
}
