//! The message functions of PKCS#11 3.0, which are not offered: the lists have them, and they say so.

#![allow(non_snake_case)]

use std::ffi::c_void;

use hsmux_token::ck::*;

use super::guard::export;
use crate::library::in_session;
use crate::rv::Rv;

/// Functions with arguments of one shape, after the session.
macro_rules! missing {
    ($($name:ident)*: $arguments:tt) => {
        $(missing!(@ $name $arguments);)*
    };
    (@ $name:ident ($($arg:ident: $kind:ty),*)) => {
        export! {
            fn $name(session: CK_SESSION_HANDLE, $($arg: $kind),*) {
                in_session(session, |_| Err(Rv(CKR_FUNCTION_NOT_SUPPORTED)))
            }
        }
    };
}

missing! {
    C_MessageEncryptInit C_MessageDecryptInit C_MessageSignInit C_MessageVerifyInit:
    (_mechanism: *mut CK_MECHANISM, _key: CK_OBJECT_HANDLE)
}

missing! {
    C_EncryptMessage C_DecryptMessage:
    (
        _parameter: *mut c_void,
        _parameter_len: CK_ULONG,
        _associated: *mut u8,
        _associated_len: CK_ULONG,
        _data: *mut u8,
        _data_len: CK_ULONG,
        _answer: *mut u8,
        _answer_len: *mut CK_ULONG
    )
}

missing! {
    C_EncryptMessageBegin C_DecryptMessageBegin:
    (
        _parameter: *mut c_void,
        _parameter_len: CK_ULONG,
        _associated: *mut u8,
        _associated_len: CK_ULONG
    )
}

missing! {
    C_EncryptMessageNext C_DecryptMessageNext:
    (
        _parameter: *mut c_void,
        _parameter_len: CK_ULONG,
        _data: *mut u8,
        _data_len: CK_ULONG,
        _answer: *mut u8,
        _answer_len: *mut CK_ULONG,
        _flags: CK_FLAGS
    )
}

missing! {
    C_SignMessage C_SignMessageNext:
    (
        _parameter: *mut c_void,
        _parameter_len: CK_ULONG,
        _data: *mut u8,
        _data_len: CK_ULONG,
        _signature: *mut u8,
        _signature_len: *mut CK_ULONG
    )
}

missing! {
    C_VerifyMessage C_VerifyMessageNext:
    (
        _parameter: *mut c_void,
        _parameter_len: CK_ULONG,
        _data: *mut u8,
        _data_len: CK_ULONG,
        _signature: *mut u8,
        _signature_len: CK_ULONG
    )
}

missing! {
    C_SignMessageBegin C_VerifyMessageBegin:
    (_parameter: *mut c_void, _parameter_len: CK_ULONG)
}

missing! {
    C_MessageEncryptFinal C_MessageDecryptFinal C_MessageSignFinal C_MessageVerifyFinal:
    ()
}
