//! Refusals at Init, by name, without a call to a token.

use hsmux_pkcs11::entry::*;
use hsmux_token::ck::*;

use crate::calls::*;
use crate::every;
use crate::soft::{AES, CERTIFICATE, EC, OAEP, RSA};

#[test]
fn mechanisms_keys_and_functions_have_to_fit() {
    let library = library();
    let s = user();
    let before = library.calls();
    let (ec, rsa) = (s.one(CKO_PRIVATE_KEY, EC), s.one(CKO_PRIVATE_KEY, RSA));
    let (public, aes) = (s.one(CKO_PUBLIC_KEY, EC), s.one(CKO_SECRET_KEY, AES));
    let certificate = s.one(CKO_CERTIFICATE, CERTIFICATE);
    let iv = [0u8; 16];
    let short = [0u8; 8];
    let sign: &[(CK_MECHANISM, Handle, CK_RV)] = &[
        (plain(CKM_ECDSA), 4711, CKR_KEY_HANDLE_INVALID),
        (plain(CKM_ECDSA), certificate, CKR_KEY_HANDLE_INVALID),
        (plain(CKM_ECDSA), public, CKR_KEY_TYPE_INCONSISTENT),
        (plain(CKM_ECDSA), rsa, CKR_KEY_TYPE_INCONSISTENT),
        (plain(CKM_RSA_PKCS), ec, CKR_KEY_TYPE_INCONSISTENT),
        (plain(CKM_SHA256), ec, CKR_MECHANISM_INVALID),
        (plain(CKM_RSA_PKCS_OAEP), rsa, CKR_MECHANISM_INVALID),
        (plain(CKM_DSA), rsa, CKR_MECHANISM_INVALID),
        (plain(0x8000_4711), rsa, CKR_MECHANISM_INVALID),
        (mechanism(CKM_ECDSA, &iv), ec, CKR_MECHANISM_PARAM_INVALID),
    ];
    for (mechanism, key, code) in sign {
        let said = s.init(C_SignInit, *mechanism, *key);
        assert_eq!(said, Err(*code), "0x{:x} {key}", mechanism.mechanism);
    }
    let decrypt: &[(CK_MECHANISM, Handle, CK_RV)] = &[
        (plain(CKM_AES_CBC), aes, CKR_MECHANISM_PARAM_INVALID),
        (
            mechanism(CKM_AES_CBC, &short),
            aes,
            CKR_MECHANISM_PARAM_INVALID,
        ),
        (mechanism(CKM_AES_CBC, &iv), rsa, CKR_KEY_TYPE_INCONSISTENT),
        (plain(CKM_RSA_PKCS), ec, CKR_KEY_TYPE_INCONSISTENT),
        (plain(CKM_ECDSA), ec, CKR_MECHANISM_INVALID),
    ];
    for (mechanism, key, code) in decrypt {
        let said = s.init(C_DecryptInit, *mechanism, *key);
        assert_eq!(said, Err(*code), "0x{:x} {key}", mechanism.mechanism);
    }
    assert_eq!(s.digest_init(CKM_ECDSA), Err(CKR_MECHANISM_INVALID));
    assert_eq!(library.calls(), before);
}

#[test]
fn a_member_is_asked_once_about_parameters_that_not_every_token_takes() {
    let library = library();
    let s = user();
    let rsa = s.one(CKO_PRIVATE_KEY, RSA);
    let begin = |hash, mgf| {
        let oaep = CK_RSA_PKCS_OAEP_PARAMS {
            hashAlg: hash,
            mgf,
            source: CKZ_DATA_SPECIFIED,
            pSourceData: std::ptr::null_mut(),
            ulSourceDataLen: 0,
        };
        let begun = s.init(C_DecryptInit, mechanism(CKM_RSA_PKCS_OAEP, &oaep), rsa);
        if begun.is_ok() {
            // A null mechanism ends the operation (PKCS#11 3.0, section 5.10).
            assert_eq!(
                unsafe { C_DecryptInit(s.0, std::ptr::null_mut(), 0) },
                CKR_OK
            );
        }
        begun
    };
    let asked = |begin: &dyn Fn() -> Answer| {
        let before = library.calls();
        (begin(), library.calls() - before)
    };
    let usual = || begin(CKM_SHA_1, CKG_MGF1_SHA1);
    let taken = || begin(CKM_SHA256, CKG_MGF1_SHA256);
    let refused = || begin(CKM_SHA512, CKG_MGF1_SHA512);
    assert_eq!(asked(&usual), (Ok(()), 0));
    assert_eq!(asked(&taken), (Ok(()), 1));
    assert_eq!(asked(&taken), (Ok(()), 0));
    // Members come and go: what was refused is asked again.
    for _ in 0..2 {
        assert_eq!(asked(&refused), (Err(CKR_MECHANISM_PARAM_INVALID), 1));
    }
}

#[test]
fn oaep_without_a_parameter_is_left_to_the_member() {
    let library = library();
    let s = user();
    let (private, public) = (s.one(CKO_PRIVATE_KEY, RSA), s.one(CKO_PUBLIC_KEY, RSA));
    for (begin, key) in [(C_DecryptInit as Init, private), (C_EncryptInit, public)] {
        let before = library.calls();
        assert_eq!(s.init(begin, plain(CKM_RSA_PKCS_OAEP), key), Ok(()));
        assert_eq!(library.calls(), before + 1);
    }
    // The member enciphers as well: only it knows the hash by which it would decipher.
    let before = library.calls();
    assert_eq!(twice(s.whole(C_Encrypt, b"text")), Ok(OAEP.to_vec()));
    assert_eq!(library.calls(), before + 1);
}

#[test]
fn keys_say_what_they_are_for() {
    let _library = library();
    let s = user();
    let template = wanted(CKO_PUBLIC_KEY, "mine").with_flag(CKA_VERIFY, false);
    let mut template = template;
    for attribute in crate::soft::public_key().to_attributes().0 {
        template.set(attribute.kind, attribute.value.0);
    }
    let key = s.create(&template).unwrap();
    let said = s.init(C_VerifyInit, plain(CKM_ECDSA), key);
    assert_eq!(said, Err(CKR_KEY_FUNCTION_NOT_PERMITTED));
}

#[test]
fn calls_without_an_init_say_so() {
    let _library = library();
    let s = open(0).unwrap();
    let wholes = [
        C_Digest,
        C_Sign,
        C_SignRecover,
        C_VerifyRecover,
        C_Encrypt,
        C_Decrypt,
    ];
    for whole in wholes
        .into_iter()
        .chain([C_EncryptUpdate, C_DecryptUpdate, C_DigestEncryptUpdate])
    {
        assert_eq!(
            given(9, s.whole(whole, b"x")).0,
            CKR_OPERATION_NOT_INITIALIZED
        );
    }
    for last in [C_DigestFinal, C_SignFinal, C_EncryptFinal, C_DecryptFinal] {
        assert_eq!(given(9, s.last(last)).0, CKR_OPERATION_NOT_INITIALIZED);
    }
    for feed in [C_DigestUpdate, C_SignUpdate, C_VerifyUpdate] {
        assert_eq!(s.feed(feed, b"x"), Err(CKR_OPERATION_NOT_INITIALIZED));
    }
    assert_eq!(s.verify(b"x", b"y"), Err(CKR_OPERATION_NOT_INITIALIZED));
    assert_eq!(
        unsafe { C_FindObjects(s.0, &mut 0, 1, &mut 0) },
        CKR_OPERATION_NOT_INITIALIZED
    );
    assert_eq!(
        unsafe { C_FindObjectsFinal(s.0) },
        CKR_OPERATION_NOT_INITIALIZED
    );
}

#[test]
fn a_session_that_is_none_is_told_from_everything() {
    let _library = library();
    let none = Session(4711);
    assert_eq!(
        none.digest_init(CKM_SHA256),
        Err(CKR_SESSION_HANDLE_INVALID)
    );
    assert_eq!(
        given(9, none.whole(C_Sign, b"x")).0,
        CKR_SESSION_HANDLE_INVALID
    );
    assert_eq!(none.login(PIN), Err(CKR_SESSION_HANDLE_INVALID));
    assert_eq!(none.close(), Err(CKR_SESSION_HANDLE_INVALID));
}

/// PKCS#11 3.0, sections 5.9, 5.11, 5.14 and 5.16: the list has all of them, and none is offered.
#[test]
fn message_functions_say_that_they_are_missing() {
    let _library = library();
    let s = open(0).unwrap();
    let mut messages = every::of_3_0();
    messages.retain(|function| function.name.contains("Message"));
    assert_eq!(messages.len(), 4 * 5);
    for function in messages {
        let name = function.name;
        assert_eq!(function.on(s.0), CKR_FUNCTION_NOT_SUPPORTED, "{name}");
        assert_eq!(function.on(4711), CKR_SESSION_HANDLE_INVALID, "{name}");
    }
}

/// Whatever else is wrong with the call (PKCS#11 3.0, section 5.1.7): all pointers are null.
#[test]
fn a_session_that_is_not_there_is_told_before_all_else() {
    const WITHOUT_SESSION: [&str; 15] = [
        "C_Initialize",
        "C_Finalize",
        "C_GetInfo",
        "C_GetFunctionList",
        "C_GetSlotList",
        "C_GetSlotInfo",
        "C_GetTokenInfo",
        "C_GetMechanismList",
        "C_GetMechanismInfo",
        "C_InitToken",
        "C_OpenSession",
        "C_CloseAllSessions",
        "C_WaitForSlotEvent",
        "C_GetInterfaceList",
        "C_GetInterface",
    ];
    let _library = library();
    let mut asked = every::of_3_0();
    asked.retain(|function| !WITHOUT_SESSION.contains(&function.name));
    assert_eq!(asked.len(), 92 - WITHOUT_SESSION.len());
    for function in asked {
        let name = function.name;
        assert_eq!(function.on(4711), CKR_SESSION_HANDLE_INVALID, "{name}");
    }
}

#[test]
fn what_is_not_offered_says_so() {
    let _library = library();
    let s = open(0).unwrap();
    assert_eq!(
        unsafe { C_GetFunctionStatus(s.0) },
        CKR_FUNCTION_NOT_PARALLEL
    );
    assert_eq!(unsafe { C_CancelFunction(s.0) }, CKR_FUNCTION_NOT_PARALLEL);
    let mut seed = [1; 8];
    let code = unsafe { C_SeedRandom(s.0, seed.as_mut_ptr(), 8) };
    assert_eq!(code, CKR_OK);
    let code = unsafe { C_SeedRandom(s.0, std::ptr::null_mut(), 8) };
    assert_eq!(code, CKR_ARGUMENTS_BAD);
    let code = unsafe { C_SeedRandom(4711, seed.as_mut_ptr(), 8) };
    assert_eq!(code, CKR_SESSION_HANDLE_INVALID);
}

#[test]
fn a_template_of_a_length_that_cannot_be_meant_is_not_read() {
    let _library = library();
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    let mut one = CK_ATTRIBUTE {
        type_: CKA_LABEL,
        pValue: std::ptr::null_mut(),
        ulValueLen: 0,
    };
    let (one, most) = (&raw mut one, 1 << 32);
    assert_eq!(
        unsafe { C_FindObjectsInit(s.0, one, most) },
        CKR_ARGUMENTS_BAD
    );
    for call in [C_GetAttributeValue, C_SetAttributeValue] {
        assert_eq!(unsafe { call(s.0, key, one, most) }, CKR_ARGUMENTS_BAD);
    }
    let mut made = 0;
    let code = unsafe { C_CreateObject(s.0, one, most, &mut made) };
    assert_eq!(code, CKR_ARGUMENTS_BAD);
}

#[test]
fn nobody_reads_signatures_that_nobody_can_make() {
    let library = library();
    let s = user();
    let mut info = CK_MECHANISM_INFO::default();
    let flags = |kind, info: &mut CK_MECHANISM_INFO| {
        assert_eq!(unsafe { C_GetMechanismInfo(SLOT, kind, info) }, CKR_OK);
        info.flags & (CKF_SIGN_RECOVER | CKF_VERIFY_RECOVER)
    };
    let both = CKF_SIGN_RECOVER | CKF_VERIFY_RECOVER;
    assert_eq!(flags(CKM_RSA_PKCS, &mut info), both);
    assert_eq!(flags(CKM_RSA_X_509, &mut info), 0);
    let said = s.init(
        C_VerifyRecoverInit,
        plain(CKM_RSA_X_509),
        s.one(CKO_PUBLIC_KEY, RSA),
    );
    assert_eq!(said, Err(CKR_MECHANISM_INVALID));
    drop(library);
}

#[test]
fn an_error_of_the_token_ends_the_operation_and_keeps_its_code() {
    let library = library();
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    let fail = |code| {
        let error = hsmux_token::Error::vendor("C_Sign", code);
        library.soft.token.fail(error, 1);
        s.init(C_SignInit, plain(CKM_ECDSA), key).unwrap();
        let said = given(64, s.whole(C_Sign, &[1; 32])).0;
        assert_eq!(
            given(64, s.whole(C_Sign, &[1; 32])).0,
            CKR_OPERATION_NOT_INITIALIZED
        );
        said
    };
    assert_eq!(fail(CKR_DATA_LEN_RANGE), CKR_DATA_LEN_RANGE);
    assert_eq!(fail(CKR_OBJECT_HANDLE_INVALID), CKR_KEY_HANDLE_INVALID);
    assert_eq!(
        fail(CKR_SESSION_HANDLE_INVALID),
        CKR_DEVICE_ERROR,
        "not the application's session"
    );
    assert_eq!(
        fail(CKR_PIN_INCORRECT),
        CKR_DEVICE_ERROR,
        "not the application's PIN"
    );
}
