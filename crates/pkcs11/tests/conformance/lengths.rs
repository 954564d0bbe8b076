//! Length queries and small buffers (PKCS#11 3.0, section 5.2): the answer costs a token nothing, and
//! the operation goes on.

use crate::calls::*;
use crate::soft::{AES, EC, RSA};
use hsmux_pkcs11::entry::*;
use hsmux_token::ck::*;

/// A function whose answer's length is known beforehand.
fn foretold(
    library: &Library,
    init: impl Fn(),
    call: impl Fn(*mut u8, *mut CK_ULONG) -> CK_RV,
    len: usize,
) {
    init();
    let before = library.calls();
    assert_eq!(asked(&call), Ok(len), "length query");
    assert_eq!(asked(&call), Ok(len), "second length query");
    let (code, said, data) = given(len - 1, &call);
    assert_eq!((code, said), (CKR_BUFFER_TOO_SMALL, len));
    assert!(data.iter().all(|byte| *byte == FILL), "nothing is written");
    assert_eq!(library.calls(), before, "no token is asked for a length");
    let (code, said, data) = given(len + 7, &call);
    assert_eq!((code, said, data.len()), (CKR_OK, len, len));
    assert_eq!(
        asked(&call),
        Err(CKR_OPERATION_NOT_INITIALIZED),
        "it is over"
    );
}

#[test]
fn lengths_are_foretold() {
    let library = library();
    let s = user();
    let (ec, rsa) = (s.one(CKO_PRIVATE_KEY, EC), s.one(CKO_PRIVATE_KEY, RSA));
    let (public, aes) = (s.one(CKO_PUBLIC_KEY, RSA), s.one(CKO_SECRET_KEY, AES));
    let iv = [3u8; 16];
    let init = |init, mechanism, key| move || s.init(init, mechanism, key).unwrap();
    let check = |start: &dyn Fn(), whole, data: &[u8], len| {
        foretold(&library, start, s.whole(whole, data), len);
    };
    check(
        &init(C_SignInit, plain(CKM_ECDSA), ec),
        C_Sign,
        &[9; 32],
        64,
    );
    check(
        &init(C_SignInit, plain(CKM_ECDSA_SHA512), ec),
        C_Sign,
        b"text",
        64,
    );
    check(
        &init(C_SignInit, plain(CKM_RSA_PKCS), rsa),
        C_Sign,
        b"text",
        128,
    );
    check(
        &init(C_SignInit, plain(CKM_SHA256_RSA_PKCS), rsa),
        C_Sign,
        b"text",
        128,
    );
    check(
        &init(C_SignInit, plain(CKM_SHA256_HMAC), aes),
        C_Sign,
        b"text",
        32,
    );
    check(
        &init(C_EncryptInit, plain(CKM_RSA_PKCS), public),
        C_Encrypt,
        b"text",
        128,
    );
    check(
        &init(C_EncryptInit, mechanism(CKM_AES_CBC, &iv), aes),
        C_Encrypt,
        &[1; 48],
        48,
    );
    check(
        &init(C_EncryptInit, mechanism(CKM_AES_CBC_PAD, &iv), aes),
        C_Encrypt,
        &[1; 48],
        64,
    );
    check(
        &init(C_DecryptInit, mechanism(CKM_AES_CBC, &iv), aes),
        C_Decrypt,
        &[1; 48],
        48,
    );
    check(
        &|| s.digest_init(CKM_SHA384).unwrap(),
        C_Digest,
        b"text",
        48,
    );
}

#[test]
fn lengths_of_final_parts_are_foretold() {
    let library = library();
    let s = user();
    let (ec, aes) = (s.one(CKO_PRIVATE_KEY, EC), s.one(CKO_SECRET_KEY, AES));
    let iv = [3u8; 16];
    let sign = || {
        s.init(C_SignInit, plain(CKM_ECDSA_SHA256), ec).unwrap();
        s.feed(C_SignUpdate, b"text").unwrap();
    };
    foretold(&library, sign, s.last(C_SignFinal), 64);
    let digest = || {
        s.digest_init(CKM_SHA_1).unwrap();
        s.feed(C_DigestUpdate, b"text").unwrap();
    };
    foretold(&library, digest, s.last(C_DigestFinal), 20);
    let encrypt = || {
        s.init(C_EncryptInit, mechanism(CKM_AES_CBC_PAD, &iv), aes)
            .unwrap();
        assert_eq!(twice(s.whole(C_EncryptUpdate, &[1; 20])).unwrap().len(), 16);
    };
    foretold(&library, encrypt, s.last(C_EncryptFinal), 16);
}

#[test]
fn a_part_that_has_no_room_is_not_taken() {
    let library = library();
    let s = user();
    let aes = s.one(CKO_SECRET_KEY, AES);
    let iv = [3u8; 16];
    s.init(C_EncryptInit, mechanism(CKM_AES_CBC, &iv), aes)
        .unwrap();
    let part = s.whole(C_EncryptUpdate, &[1; 40]);
    let before = library.calls();
    assert_eq!(asked(&part), Ok(32));
    let (code, said, _) = given(31, &part);
    assert_eq!((code, said), (CKR_BUFFER_TOO_SMALL, 32));
    assert_eq!(library.calls(), before);
    let first = given(32, &part).2;
    let second = twice(s.whole(C_EncryptUpdate, &[1; 8])).unwrap();
    assert_eq!(asked(s.last(C_EncryptFinal)), Ok(0));
    let (code, said, _) = given(0, s.last(C_EncryptFinal));
    assert_eq!((code, said), (CKR_OK, 0));
    s.init(C_EncryptInit, mechanism(CKM_AES_CBC, &iv), aes)
        .unwrap();
    let whole = twice(s.whole(C_Encrypt, &[1; 48])).unwrap();
    assert_eq!(whole, [first, second].concat());
}

#[test]
fn an_answer_of_unknown_length_is_computed_once() {
    let library = library();
    let s = user();
    let (rsa, aes) = (s.one(CKO_PRIVATE_KEY, RSA), s.one(CKO_SECRET_KEY, AES));
    s.init(C_DecryptInit, plain(CKM_RSA_PKCS), rsa).unwrap();
    let decrypt = s.whole(C_Decrypt, &[1; 128]);
    let before = library.calls();
    assert_eq!(asked(&decrypt), Ok(128), "a bound, without asking a token");
    assert_eq!(library.calls(), before);
    let (code, said, data) = given(2, &decrypt);
    assert_eq!((code, said), (CKR_BUFFER_TOO_SMALL, 5), "now it is known");
    assert_eq!(data, [FILL; 2]);
    assert_eq!(given(5, &decrypt), (CKR_OK, 5, b"plain".to_vec()));
    assert_eq!(library.calls(), before + 1, "one call to the token");

    let iv = [3u8; 16];
    s.init(C_EncryptInit, mechanism(CKM_AES_CBC_PAD, &iv), aes)
        .unwrap();
    let text = twice(s.whole(C_Encrypt, b"seventeen letters")).unwrap();
    s.init(C_DecryptInit, mechanism(CKM_AES_CBC_PAD, &iv), aes)
        .unwrap();
    let decrypt = s.whole(C_Decrypt, &text);
    assert_eq!(asked(&decrypt), Ok(32));
    let before = library.calls();
    assert_eq!(given(16, &decrypt).0, CKR_BUFFER_TOO_SMALL);
    assert_eq!(given(17, &decrypt).2, b"seventeen letters");
    assert_eq!(library.calls(), before + 1);
}

#[test]
fn other_data_is_not_answered_with_what_was_kept() {
    let _library = library();
    let s = user();
    let aes = s.one(CKO_SECRET_KEY, AES);
    let iv = [3u8; 16];
    let encrypt = |text: &[u8]| {
        s.init(C_EncryptInit, mechanism(CKM_AES_CBC_PAD, &iv), aes)
            .unwrap();
        twice(s.whole(C_Encrypt, text)).unwrap()
    };
    let (one, two) = (encrypt(b"one text"), encrypt(b"another text"));
    s.init(C_DecryptInit, mechanism(CKM_AES_CBC_PAD, &iv), aes)
        .unwrap();
    assert_eq!(given(1, s.whole(C_Decrypt, &one)).0, CKR_BUFFER_TOO_SMALL);
    assert_eq!(given(32, s.whole(C_Decrypt, &two)).2, b"another text");
}

#[test]
fn null_pointers_are_bad_arguments() {
    let _library = library();
    let s = user();
    let ec = s.one(CKO_PRIVATE_KEY, EC);
    s.init(C_SignInit, plain(CKM_ECDSA), ec).unwrap();
    let code = unsafe { C_Sign(s.0, NOTHING.cast_mut(), 32, NOTHING.cast_mut(), &mut 0) };
    assert_eq!(code, CKR_ARGUMENTS_BAD, "data of 32 bytes at null");
    let code = unsafe {
        C_Sign(
            s.0,
            [0; 32].as_mut_ptr(),
            32,
            [0; 64].as_mut_ptr(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(code, CKR_ARGUMENTS_BAD, "no length");
    let code = unsafe {
        C_Sign(
            s.0,
            [0; 32].as_mut_ptr(),
            u64::MAX,
            [0; 64].as_mut_ptr(),
            &mut 64,
        )
    };
    assert_eq!(code, CKR_ARGUMENTS_BAD, "a length that cannot be");
    assert_eq!(
        unsafe { C_OpenSession(SLOT, 4, std::ptr::null_mut(), None, std::ptr::null_mut()) },
        CKR_ARGUMENTS_BAD
    );
    assert_eq!(
        unsafe { C_GetTokenInfo(SLOT, std::ptr::null_mut()) },
        CKR_ARGUMENTS_BAD
    );
}
