//! Sessions and logins.

use std::ptr::null_mut;

use hsmux_pkcs11::entry::*;
use hsmux_token::Attributes;
use hsmux_token::ck::*;

use crate::calls::*;
use crate::soft::{EACH_TIME, EC};

#[test]
fn sessions_open_and_close() {
    let _library = library();
    let code = unsafe { C_OpenSession(SLOT, CKF_RW_SESSION, null_mut(), None, &mut 0) };
    assert_eq!(code, CKR_SESSION_PARALLEL_NOT_SUPPORTED);
    let code = unsafe { C_OpenSession(7, CKF_SERIAL_SESSION, null_mut(), None, &mut 0) };
    assert_eq!(code, CKR_SLOT_ID_INVALID);
    let (one, two) = (open(0).unwrap(), open(CKF_RW_SESSION).unwrap());
    assert_ne!(one.0, two.0);
    let mut info = CK_TOKEN_INFO::default();
    unsafe { C_GetTokenInfo(SLOT, &mut info) };
    assert_eq!((info.ulSessionCount, info.ulRwSessionCount), (2, 1));
    one.close().unwrap();
    assert_eq!(one.close(), Err(CKR_SESSION_HANDLE_INVALID));
    assert_eq!(unsafe { C_CloseAllSessions(SLOT) }, CKR_OK);
    assert_eq!(two.state(), Err(CKR_SESSION_HANDLE_INVALID));
}

#[test]
fn the_login_is_the_applications() {
    let _library = library();
    let (one, two) = (open(0).unwrap(), open(CKF_RW_SESSION).unwrap());
    assert_eq!(
        (one.state(), two.state()),
        (Ok(CKS_RO_PUBLIC_SESSION), Ok(CKS_RW_PUBLIC_SESSION))
    );
    assert_eq!(one.login(b"1357"), Err(CKR_PIN_INCORRECT));
    assert_eq!(one.login(b""), Err(CKR_PIN_INCORRECT));
    let is_low = || {
        let mut info = CK_TOKEN_INFO::default();
        assert_eq!(unsafe { C_GetTokenInfo(SLOT, &mut info) }, CKR_OK);
        info.flags & CKF_USER_PIN_COUNT_LOW != 0
    };
    assert!(is_low());
    one.login(PIN).unwrap();
    assert!(!is_low());
    assert_eq!(two.login(PIN), Err(CKR_USER_ALREADY_LOGGED_IN));
    assert_eq!(
        (one.state(), two.state()),
        (Ok(CKS_RO_USER_FUNCTIONS), Ok(CKS_RW_USER_FUNCTIONS))
    );
    assert_eq!(unsafe { C_Logout(two.0) }, CKR_OK);
    assert_eq!(unsafe { C_Logout(one.0) }, CKR_USER_NOT_LOGGED_IN);
    assert_eq!(one.state(), Ok(CKS_RO_PUBLIC_SESSION));
}

#[test]
fn private_objects_are_there_for_the_user_only() {
    let _library = library();
    let s = open(0).unwrap();
    let private = wanted(CKO_PRIVATE_KEY, EC);
    assert_eq!(s.find(&private), Ok(vec![]));
    s.login(PIN).unwrap();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    s.init(C_SignInit, plain(CKM_ECDSA), key).unwrap();
    assert_eq!(unsafe { C_Logout(s.0) }, CKR_OK);
    assert_eq!(s.find(&private), Ok(vec![]));
    assert_eq!(s.get(key, CKA_LABEL), Err(CKR_OBJECT_HANDLE_INVALID));
    let other = open(0).unwrap();
    assert_eq!(
        other.init(C_SignInit, plain(CKM_ECDSA), key),
        Err(CKR_KEY_HANDLE_INVALID)
    );
    s.login(PIN).unwrap();
    assert_eq!(
        s.one(CKO_PRIVATE_KEY, EC),
        key,
        "the handle is the same again"
    );
}

#[test]
fn what_is_under_way_ends_with_the_login() {
    let library = library();
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    s.init(C_SignInit, plain(CKM_ECDSA), key).unwrap();
    assert_eq!(unsafe { C_Logout(s.0) }, CKR_OK);
    let before = library.calls();
    let (code, ..) = given(64, s.whole(C_Sign, &[1; 32]));
    assert_eq!(code, CKR_OPERATION_NOT_INITIALIZED);
    assert_eq!(library.calls(), before);
}

#[test]
fn the_last_session_takes_the_login_along() {
    let _library = library();
    let (one, two) = (user(), open(0).unwrap());
    one.close().unwrap();
    assert_eq!(two.state(), Ok(CKS_RO_USER_FUNCTIONS));
    two.close().unwrap();
    assert_eq!(open(0).unwrap().state(), Ok(CKS_RO_PUBLIC_SESSION));
}

#[test]
fn administration_is_refused() {
    let _library = library();
    let s = open(CKF_RW_SESSION).unwrap();
    assert_eq!(s.login_as(CKU_SO, PIN), Err(CKR_USER_TYPE_INVALID));
    let reader = open(0).unwrap();
    let said = s.login_as(CKU_SO, PIN);
    assert_eq!(said, Err(CKR_SESSION_READ_ONLY_EXISTS));
    reader.close().unwrap();
    s.login(PIN).unwrap();
    let said = s.login_as(CKU_SO, PIN);
    assert_eq!(said, Err(CKR_USER_ANOTHER_ALREADY_LOGGED_IN));
    let reader = open(0).unwrap();
    let said = reader.login_as(CKU_SO, PIN);
    assert_eq!(said, Err(CKR_SESSION_READ_ONLY_EXISTS));
    reader.close().unwrap();
    assert_eq!(unsafe { C_Logout(s.0) }, CKR_OK);
    assert_eq!(s.login_as(17, PIN), Err(CKR_USER_TYPE_INVALID));
    assert_eq!(
        unsafe { C_InitPIN(s.0, null_mut(), 0) },
        CKR_FUNCTION_NOT_SUPPORTED
    );
    let code = unsafe { C_SetPIN(s.0, null_mut(), 0, null_mut(), 0) };
    assert_eq!(code, CKR_FUNCTION_NOT_SUPPORTED);
    let mut pin = PIN.to_vec();
    let code = unsafe {
        C_LoginUser(
            s.0,
            CKU_USER,
            pin.as_mut_ptr(),
            4,
            b"me".as_ptr().cast_mut(),
            2,
        )
    };
    assert_eq!(code, CKR_USER_TYPE_INVALID);
    let code = unsafe { C_LoginUser(s.0, CKU_USER, pin.as_mut_ptr(), 4, null_mut(), 0) };
    assert_eq!(code, CKR_OK);
}

#[test]
fn a_key_may_ask_for_its_pin_each_time() {
    let library = library();
    let s = user();
    assert_eq!(
        s.login_as(CKU_CONTEXT_SPECIFIC, PIN),
        Err(CKR_OPERATION_NOT_INITIALIZED)
    );
    let key = s.one(CKO_PRIVATE_KEY, EACH_TIME);
    let sign = s.whole(C_Sign, &[1; 32]);
    for _ in 0..2 {
        let before = library.calls();
        s.init(C_SignInit, plain(CKM_ECDSA), key).unwrap();
        assert_eq!(asked(&sign), Ok(64), "a length is no secret");
        assert_eq!(given(64, &sign).0, CKR_USER_NOT_LOGGED_IN);
        assert_eq!(library.calls(), before);
        s.init(C_SignInit, plain(CKM_ECDSA), key).unwrap();
        assert_eq!(
            s.login_as(CKU_CONTEXT_SPECIFIC, b"1357"),
            Err(CKR_PIN_INCORRECT)
        );
        s.login_as(CKU_CONTEXT_SPECIFIC, PIN).unwrap();
        assert_eq!(given(64, &sign).0, CKR_OK);
    }
}

#[test]
fn read_only_sessions_change_nothing_that_lasts() {
    let _library = library();
    let s = open(0).unwrap();
    s.login(PIN).unwrap();
    let data = Attributes::default().with_number(CKA_CLASS, CKO_DATA);
    let lasting = data.clone().with_flag(CKA_TOKEN, true);
    assert_eq!(s.create(&lasting), Err(CKR_SESSION_READ_ONLY));
    let key = s.one(CKO_PRIVATE_KEY, EC);
    assert_eq!(s.destroy(key), Err(CKR_SESSION_READ_ONLY));
    let mine = s.create(&data).unwrap();
    s.destroy(mine).unwrap();
}
