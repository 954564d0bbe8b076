//! Objects: found, read, made, copied, changed, destroyed.

use std::ptr::null_mut;

use hsmux_pkcs11::entry::*;
use hsmux_token::Attributes;
use hsmux_token::ck::*;

use crate::calls::*;
use crate::soft::{AES, CERTIFICATE, EC, RSA, named};

#[test]
fn objects_are_found_by_what_they_are() {
    let _library = library();
    let s = user();
    assert_eq!(s.find(&Attributes::default()).unwrap().len(), 7);
    let keys = Attributes::default().with_number(CKA_CLASS, CKO_PRIVATE_KEY);
    assert_eq!(s.find(&keys).unwrap().len(), 3);
    assert_eq!(
        s.find(&keys.with_number(CKA_KEY_TYPE, CKK_RSA))
            .unwrap()
            .len(),
        1
    );
    assert_eq!(s.find(&wanted(CKO_PRIVATE_KEY, "nobody")), Ok(vec![]));
    let value = Attributes::default().with(CKA_VALUE, b"not really".to_vec());
    assert_eq!(
        s.find(&value),
        Ok(vec![s.one(CKO_CERTIFICATE, CERTIFICATE)])
    );
}

#[test]
fn a_search_is_one_at_a_time() {
    let _library = library();
    let s = open(0).unwrap();
    let init = || unsafe { C_FindObjectsInit(s.0, null_mut(), 0) };
    assert_eq!((init(), init()), (CKR_OK, CKR_OPERATION_ACTIVE));
    assert_eq!(unsafe { C_FindObjectsFinal(s.0) }, CKR_OK);
    assert_eq!(init(), CKR_OK);
}

#[test]
fn handles_stay_and_the_catalogue_moves() {
    let library = library();
    let s = user();
    let (ec, rsa) = (s.one(CKO_PRIVATE_KEY, EC), s.one(CKO_PRIVATE_KEY, RSA));
    let remaining = |label: &str| {
        let key = wanted(CKO_PRIVATE_KEY, label).with_flag(CKA_TOKEN, true);
        named(key.with_number(CKA_KEY_TYPE, CKK_EC))
    };
    library
        .soft
        .token
        .set_objects(vec![remaining("new"), remaining(EC)]);
    assert_eq!(s.one(CKO_PRIVATE_KEY, EC), ec);
    assert_eq!(s.find(&wanted(CKO_PRIVATE_KEY, RSA)), Ok(vec![]));
    assert_eq!(s.get(rsa, CKA_LABEL), Err(CKR_OBJECT_HANDLE_INVALID));
    assert!(![ec, rsa].contains(&s.one(CKO_PRIVATE_KEY, "new")));
}

#[test]
fn attributes_are_asked_for_and_read() {
    let _library = library();
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    assert_eq!(s.get(key, CKA_LABEL), Ok(EC.as_bytes().to_vec()));
    assert_eq!(
        s.get(key, CKA_CLASS),
        Ok(CKO_PRIVATE_KEY.to_le_bytes().to_vec())
    );
    assert_eq!(s.get(key, CKA_VALUE), Err(CKR_ATTRIBUTE_SENSITIVE));
    assert_eq!(s.get(key, CKA_MODULUS), Err(CKR_ATTRIBUTE_TYPE_INVALID));
    assert_eq!(s.get(4711, CKA_LABEL), Err(CKR_OBJECT_HANDLE_INVALID));
    let mut size = 0;
    assert_eq!(unsafe { C_GetObjectSize(s.0, key, &mut size) }, CKR_OK);
    assert_ne!(size, 0);
}

#[test]
fn every_attribute_is_answered_also_after_a_bad_one() {
    let _library = library();
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    let mut label = [0u8; 8];
    let mut small = [0u8; 1];
    let mut class = [0u8; 8];
    let attribute = |type_, place: &mut [u8]| CK_ATTRIBUTE {
        type_,
        pValue: place.as_mut_ptr().cast(),
        ulValueLen: place.len() as CK_ULONG,
    };
    let mut template = [
        attribute(CKA_VALUE, &mut []),
        attribute(CKA_LABEL, &mut label),
        attribute(CKA_ID, &mut small),
        attribute(CKA_MODULUS, &mut []),
        attribute(CKA_CLASS, &mut class),
    ];
    let code = unsafe { C_GetAttributeValue(s.0, key, template.as_mut_ptr(), 5) };
    assert_eq!(code, CKR_ATTRIBUTE_SENSITIVE, "the first of several errors");
    let lens = template.map(|attribute| attribute.ulValueLen);
    let none = CK_UNAVAILABLE_INFORMATION;
    assert_eq!(lens, [none, 2, none, none, 8]);
    assert_eq!(&label[..2], EC.as_bytes());
    assert_eq!(class, CKO_PRIVATE_KEY.to_le_bytes());
    let code = unsafe { C_GetAttributeValue(s.0, key, template[2..].as_mut_ptr(), 1) };
    assert_eq!(code, CKR_BUFFER_TOO_SMALL, "the mark is not taken for room");
}

#[test]
fn data_of_a_session_lives_here_and_dies_with_it() {
    let library = library();
    let (s, other) = (open(0).unwrap(), open(0).unwrap());
    let before = library.calls();
    let template = wanted(CKO_DATA, "note").with(CKA_VALUE, b"one".to_vec());
    let note = s.create(&template).unwrap();
    assert_eq!(
        other.get(note, CKA_VALUE),
        Ok(b"one".to_vec()),
        "all sessions see it"
    );
    assert_eq!(s.get(note, CKA_TOKEN), Ok(vec![CK_FALSE]));
    let mut change = raw(&Attributes::default().with(CKA_VALUE, b"two".to_vec()));
    assert_eq!(
        unsafe { C_SetAttributeValue(s.0, note, change.as_mut_ptr(), 1) },
        CKR_OK
    );
    let mut copy = 0;
    let mut rename = raw(&Attributes::default().with(CKA_LABEL, b"copy".to_vec()));
    let code = unsafe { C_CopyObject(other.0, note, rename.as_mut_ptr(), 1, &mut copy) };
    assert_eq!(code, CKR_OK);
    // A copy is what its original is.
    let other_class = Attributes::default().with_number(CKA_CLASS, CKO_CERTIFICATE);
    let mut other_class = raw(&other_class);
    let code = unsafe { C_CopyObject(other.0, note, other_class.as_mut_ptr(), 1, &mut 0) };
    assert_eq!(code, CKR_ATTRIBUTE_READ_ONLY);
    s.close().unwrap();
    assert_eq!(other.get(note, CKA_VALUE), Err(CKR_OBJECT_HANDLE_INVALID));
    assert_eq!(other.get(copy, CKA_VALUE), Ok(b"two".to_vec()));
    assert_eq!(other.one(CKO_DATA, "copy"), copy);
    other.destroy(copy).unwrap();
    assert_eq!(library.calls(), before, "no token knows of it");
}

/// NSS signs TLS handshakes with such copies: a member's object would bind them to that member.
#[test]
fn a_sessions_copy_of_a_private_key_is_that_key_by_another_handle() {
    let library = library();
    let (s, other) = (user(), open(0).unwrap());
    let key = s.one(CKO_PRIVATE_KEY, EC);
    let template = wanted(CKO_PRIVATE_KEY, "copy").with_flag(CKA_TOKEN, false);
    let mut named = raw(&Attributes(template.0[1..].to_vec()));
    let (before, mut copy) = (library.calls(), 0);
    let code = unsafe { C_CopyObject(s.0, key, named.as_mut_ptr(), 2, &mut copy) };
    assert_eq!(code, CKR_OK);
    assert_eq!(s.one(CKO_PRIVATE_KEY, "copy"), copy);
    assert_eq!(other.get(copy, CKA_TOKEN), Ok(vec![CK_FALSE]));
    let mut label = raw(&Attributes::default().with(CKA_LABEL, b"renamed".to_vec()));
    let code = unsafe { C_SetAttributeValue(s.0, copy, label.as_mut_ptr(), 1) };
    assert_eq!(code, CKR_OK);
    assert_eq!(library.calls(), before, "no token knows of it");
    other.init(C_SignInit, plain(CKM_ECDSA), copy).unwrap();
    twice(other.whole(C_Sign, &[7; 32])).unwrap();
    s.destroy(copy).unwrap();
    assert_eq!(s.get(copy, CKA_LABEL), Err(CKR_OBJECT_HANDLE_INVALID));
    assert_eq!(s.one(CKO_PRIVATE_KEY, EC), key, "the original stays");
}

#[test]
fn templates_are_looked_at() {
    let _library = library();
    let s = user();
    let template = Attributes::default().with(CKA_LABEL, b"what".to_vec());
    assert_eq!(s.create(&template), Err(CKR_TEMPLATE_INCOMPLETE));
    let wide = wanted(CKO_DATA, "x").with(CKA_TOKEN, vec![1, 0]);
    assert_eq!(s.create(&wide), Err(CKR_ATTRIBUTE_VALUE_INVALID));
    let mut twice = wanted(CKO_DATA, "x").with_flag(CKA_TOKEN, false);
    twice.0.push(twice.0[2].clone());
    assert_eq!(s.create(&twice), Err(CKR_TEMPLATE_INCONSISTENT));
    let key = s.one(CKO_PRIVATE_KEY, EC);
    let mut class = raw(&Attributes::default().with_number(CKA_CLASS, CKO_DATA));
    let code = unsafe { C_SetAttributeValue(s.0, key, class.as_mut_ptr(), 1) };
    assert_eq!(code, CKR_ATTRIBUTE_READ_ONLY);
}

#[test]
fn objects_may_forbid_what_is_done_to_them() {
    let _library = library();
    let s = open(0).unwrap();
    let template = wanted(CKO_DATA, "fixed")
        .with_flag(CKA_MODIFIABLE, false)
        .with_flag(CKA_COPYABLE, false)
        .with_flag(CKA_DESTROYABLE, false);
    let object = s.create(&template).unwrap();
    let mut label = raw(&Attributes::default().with(CKA_LABEL, b"other".to_vec()));
    let code = unsafe { C_SetAttributeValue(s.0, object, label.as_mut_ptr(), 1) };
    assert_eq!(code, CKR_ACTION_PROHIBITED);
    let code = unsafe { C_CopyObject(s.0, object, null_mut(), 0, &mut 0) };
    assert_eq!(code, CKR_ACTION_PROHIBITED);
    assert_eq!(s.destroy(object), Err(CKR_ACTION_PROHIBITED));
}

#[test]
fn private_objects_are_not_made_by_the_public() {
    let _library = library();
    let s = open(CKF_RW_SESSION).unwrap();
    let template = wanted(CKO_DATA, "x").with_flag(CKA_PRIVATE, true);
    assert_eq!(s.create(&template), Err(CKR_USER_NOT_LOGGED_IN));
    s.login(PIN).unwrap();
    s.create(&template).unwrap();
    assert_eq!(unsafe { C_Logout(s.0) }, CKR_OK);
    assert_eq!(
        s.find(&wanted(CKO_DATA, "x")),
        Ok(vec![]),
        "it is gone with the login"
    );
    assert_eq!(s.find(&wanted(CKO_SECRET_KEY, AES)), Ok(vec![]));
}

#[test]
fn certificates_have_subjects_and_nothing_is_trusted() {
    let library = library();
    let s = user();
    let whole = || {
        wanted(CKO_CERTIFICATE, "new")
            .with_number(CKA_CERTIFICATE_TYPE, CKC_X_509)
            .with(CKA_VALUE, b"a certificate".to_vec())
    };
    let before = library.calls();
    for token in [false, true] {
        let bare = whole().with_flag(CKA_TOKEN, token);
        assert_eq!(s.create(&bare), Err(CKR_TEMPLATE_INCOMPLETE));
        let named = bare.with(CKA_SUBJECT, b"0".to_vec());
        let trusted = named.with_flag(CKA_TRUSTED, true);
        assert_eq!(s.create(&trusted), Err(CKR_ATTRIBUTE_READ_ONLY));
    }
    let named = whole().with(CKA_SUBJECT, b"0".to_vec());
    let made = s.create(&named.with_flag(CKA_TRUSTED, false)).unwrap();
    let trusted = Attributes::default().with_flag(CKA_TRUSTED, true);
    let (mut trusted, mut copy) = (raw(&trusted), 0);
    let code = unsafe { C_CopyObject(s.0, made, trusted.as_mut_ptr(), 1, &mut copy) };
    assert_eq!(code, CKR_ATTRIBUTE_READ_ONLY);
    let code = unsafe { C_SetAttributeValue(s.0, made, trusted.as_mut_ptr(), 1) };
    assert_eq!(code, CKR_ATTRIBUTE_READ_ONLY);
    let data = wanted(CKO_DATA, "data").with_flag(CKA_TRUSTED, true);
    assert_eq!(s.create(&data), Err(CKR_ATTRIBUTE_READ_ONLY));
    assert_eq!(library.calls(), before);
}
