//! Signatures and digests: hashed on the host, verified on the host, in one part or many.

use hsmux_pkcs11::entry::*;
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Mechanism};

use crate::calls::*;
use crate::soft::{AES, EC, RSA, public_key};

#[test]
fn signatures_in_one_part_or_many_are_good() {
    let library = library();
    let s = user();
    let (private, public) = (s.one(CKO_PRIVATE_KEY, EC), s.one(CKO_PUBLIC_KEY, EC));
    for kind in [CKM_ECDSA_SHA1, CKM_ECDSA_SHA256, CKM_ECDSA_SHA512] {
        s.init(C_SignInit, plain(kind), private).unwrap();
        let one = twice(s.whole(C_Sign, b"a text")).unwrap();
        s.init(C_SignInit, plain(kind), private).unwrap();
        s.feed(C_SignUpdate, b"a ").unwrap();
        s.feed(C_SignUpdate, b"text").unwrap();
        let many = twice(s.last(C_SignFinal)).unwrap();
        let before = library.calls();
        for signature in [&one, &many] {
            public_key()
                .verify(&Mechanism::plain(kind), b"a text", signature)
                .unwrap();
            s.init(C_VerifyInit, plain(kind), public).unwrap();
            assert_eq!(s.verify(b"a text", signature), Ok(()));
            s.init(C_VerifyInit, plain(kind), public).unwrap();
            s.feed(C_VerifyUpdate, b"a te").unwrap();
            s.feed(C_VerifyUpdate, b"xt").unwrap();
            let code = unsafe { C_VerifyFinal(s.0, signature.as_ptr().cast_mut(), 64) };
            assert_eq!(code, CKR_OK);
            s.init(C_VerifyInit, plain(kind), public).unwrap();
            assert_eq!(s.verify(b"a tyxt", signature), Err(CKR_SIGNATURE_INVALID));
            s.init(C_VerifyInit, plain(kind), public).unwrap();
            assert_eq!(
                s.verify(b"a text", &signature[1..]),
                Err(CKR_SIGNATURE_LEN_RANGE)
            );
        }
        assert_eq!(library.calls(), before, "no token verifies");
    }
}

#[test]
fn macs_are_verified_by_who_has_the_key() {
    let _library = library();
    let s = user();
    let key = s.one(CKO_SECRET_KEY, AES);
    s.init(C_SignInit, plain(CKM_SHA256_HMAC), key).unwrap();
    let mac = twice(s.whole(C_Sign, b"a text")).unwrap();
    s.init(C_VerifyInit, plain(CKM_SHA256_HMAC), key).unwrap();
    assert_eq!(s.verify(b"a text", &mac), Ok(()));
    s.init(C_VerifyInit, plain(CKM_SHA256_HMAC), key).unwrap();
    assert_eq!(s.verify(b"another", &mac), Err(CKR_SIGNATURE_INVALID));
}

#[test]
fn digests() {
    let library = library();
    let s = open(0).unwrap();
    let before = library.calls();
    s.digest_init(CKM_SHA_1).unwrap();
    s.feed(C_DigestUpdate, b"ab").unwrap();
    s.feed(C_DigestUpdate, b"c").unwrap();
    let digest = twice(s.last(C_DigestFinal)).unwrap();
    // FIPS 180-4, the example of "abc".
    assert_eq!(digest[..4], [0xa9, 0x99, 0x3e, 0x36]);
    s.digest_init(CKM_SHA_1).unwrap();
    assert_eq!(twice(s.whole(C_Digest, b"abc")), Ok(digest));
    assert_eq!(library.calls(), before);
}

#[test]
fn keys_are_not_digested_unless_they_can_be_read() {
    let _library = library();
    let s = user();
    s.digest_init(CKM_SHA256).unwrap();
    let code = unsafe { C_DigestKey(s.0, s.one(CKO_SECRET_KEY, AES)) };
    assert_eq!(code, CKR_KEY_INDIGESTIBLE);
    assert_eq!(
        twice(s.last(C_DigestFinal)).unwrap().len(),
        32,
        "the digest goes on"
    );
    let code = unsafe { C_DigestKey(s.0, 4711) };
    assert_eq!(code, CKR_KEY_HANDLE_INVALID);
}

#[test]
fn public_keys_encipher_here() {
    let library = library();
    let s = user();
    let before = library.calls();
    let public = s.one(CKO_PUBLIC_KEY, RSA);
    s.init(C_EncryptInit, plain(CKM_RSA_PKCS), public).unwrap();
    assert_eq!(twice(s.whole(C_Encrypt, b"a text")).unwrap().len(), 128);
    s.init(C_EncryptInit, plain(CKM_RSA_PKCS), public).unwrap();
    assert_eq!(
        given(128, s.whole(C_Encrypt, &[1; 118])).0,
        CKR_DATA_LEN_RANGE
    );
    assert_eq!(library.calls(), before);
}

#[test]
fn one_operation_of_each_function_at_a_time() {
    let _library = library();
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    s.init(C_SignInit, plain(CKM_ECDSA_SHA256), key).unwrap();
    assert_eq!(
        s.init(C_SignInit, plain(CKM_ECDSA), key),
        Err(CKR_OPERATION_ACTIVE)
    );
    s.digest_init(CKM_SHA256).unwrap();
    s.feed(C_SignUpdate, b"a").unwrap();
    assert_eq!(
        given(64, s.whole(C_Sign, b"b")).0,
        CKR_OPERATION_ACTIVE,
        "parts have begun"
    );
    assert_eq!(
        given(64, s.last(C_SignFinal)).0,
        CKR_OPERATION_NOT_INITIALIZED
    );
    assert_eq!(twice(s.whole(C_Digest, b"abc")).unwrap().len(), 32);
}

#[test]
fn operations_can_be_ended() {
    let _library = library();
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    let null = std::ptr::null_mut();
    assert_eq!(
        unsafe { C_SignInit(s.0, null, key) },
        CKR_ARGUMENTS_BAD,
        "nothing to end"
    );
    s.init(C_SignInit, plain(CKM_ECDSA), key).unwrap();
    assert_eq!(unsafe { C_SignInit(s.0, null, key) }, CKR_OK);
    s.init(C_SignInit, plain(CKM_ECDSA), key).unwrap();
    s.digest_init(CKM_SHA256).unwrap();
    assert_eq!(
        unsafe { C_SessionCancel(s.0, CKF_SIGN | CKF_FIND_OBJECTS) },
        CKR_OK
    );
    assert_eq!(
        given(64, s.whole(C_Sign, &[1; 32])).0,
        CKR_OPERATION_NOT_INITIALIZED
    );
    assert_eq!(
        twice(s.whole(C_Digest, b"")).unwrap().len(),
        32,
        "which was not named"
    );
}

#[test]
fn states_are_not_saved() {
    let _library = library();
    let s = open(0).unwrap();
    let state = |s: Session| unsafe { C_GetOperationState(s.0, std::ptr::null_mut(), &mut 0) };
    let nowhere = unsafe { C_GetOperationState(s.0, std::ptr::null_mut(), std::ptr::null_mut()) };
    assert_eq!(nowhere, CKR_ARGUMENTS_BAD);
    assert_eq!(state(s), CKR_OPERATION_NOT_INITIALIZED);
    s.digest_init(CKM_SHA256).unwrap();
    assert_eq!(state(s), CKR_STATE_UNSAVEABLE);
    let restore = |state: *mut u8| unsafe { C_SetOperationState(s.0, state, 1, 0, 0) };
    assert_eq!(restore(&mut 0), CKR_SAVED_STATE_INVALID);
    assert_eq!(restore(std::ptr::null_mut()), CKR_ARGUMENTS_BAD);
}

#[test]
fn a_session_public_key_verifies() {
    let library = library();
    let s = open(0).unwrap();
    s.login(PIN).unwrap();
    let private = s.one(CKO_PRIVATE_KEY, EC);
    s.init(C_SignInit, plain(CKM_ECDSA_SHA256), private)
        .unwrap();
    let signature = twice(s.whole(C_Sign, b"a text")).unwrap();
    let before = library.calls();
    let mut template = public_key().to_attributes();
    template.set_flag(CKA_TOKEN, false);
    let key = s.create(&template).unwrap();
    s.init(C_VerifyInit, plain(CKM_ECDSA_SHA256), key).unwrap();
    assert_eq!(s.verify(b"a text", &signature), Ok(()));
    assert_eq!(library.calls(), before, "no token knows of it");
    let broken = Attributes::default()
        .with_number(CKA_CLASS, CKO_PUBLIC_KEY)
        .with_number(CKA_KEY_TYPE, CKK_EC);
    assert_eq!(s.create(&broken), Err(CKR_TEMPLATE_INCONSISTENT));
}
