//! Key management: what it makes is found under its handle, and goes with its session.

use hsmux_pkcs11::entry::*;
use hsmux_token::Attributes;
use hsmux_token::ck::*;

use crate::calls::*;
use crate::soft::{AES, EC, P256};

fn generate(s: Session, template: &Attributes) -> Answer<Handle> {
    let mut key = 0;
    let mut raw = raw(template);
    let mut mechanism = plain(CKM_AES_KEY_GEN);
    ok(unsafe {
        C_GenerateKey(
            s.0,
            &mut mechanism,
            raw.as_mut_ptr(),
            raw.len() as CK_ULONG,
            &mut key,
        )
    })?;
    Ok(key)
}

fn aes(label: &str) -> Attributes {
    wanted(CKO_SECRET_KEY, label)
        .with_number(CKA_KEY_TYPE, CKK_AES)
        .with_number(CKA_VALUE_LEN, 16)
}

#[test]
fn session_keys_go_with_their_session() {
    let library = library();
    let (s, other) = (user(), open(0).unwrap());
    let key = generate(s, &aes("mine")).unwrap();
    assert_eq!(other.one(CKO_SECRET_KEY, "mine"), key);
    other.init(C_EncryptInit, plain(CKM_AES_ECB), key).unwrap();
    assert_eq!(twice(other.whole(C_Encrypt, &[1; 16])), Ok(vec![2; 16]));
    let before = library.calls();
    s.close().unwrap();
    assert_eq!(library.calls(), before + 1, "its member is told");
    assert_eq!(
        other.init(C_EncryptInit, plain(CKM_AES_ECB), key),
        Err(CKR_KEY_HANDLE_INVALID)
    );
}

#[test]
fn values_are_read_of_keys_that_do_not_hide_them() {
    let _library = library();
    let s = user();
    let open = aes("open")
        .with_flag(CKA_SENSITIVE, false)
        .with_flag(CKA_EXTRACTABLE, true);
    let key = generate(s, &open).unwrap();
    assert_eq!(s.get(key, CKA_VALUE), Ok(vec![0x5a; 16]));
    let hidden = aes("hidden").with_flag(CKA_SENSITIVE, true);
    let key = generate(s, &hidden).unwrap();
    assert_eq!(s.get(key, CKA_VALUE), Err(CKR_ATTRIBUTE_SENSITIVE));
}

#[test]
fn token_keys_are_found_at_once() {
    let _library = library();
    let s = user();
    let key = generate(s, &aes("lasting").with_flag(CKA_TOKEN, true)).unwrap();
    assert_eq!(s.one(CKO_SECRET_KEY, "lasting"), key);
    let reader = open(0).unwrap();
    let said = generate(reader, &aes("lasting").with_flag(CKA_TOKEN, true));
    assert_eq!(said, Err(CKR_SESSION_READ_ONLY));
}

#[test]
fn pairs_sign_and_verify() {
    let _library = library();
    let s = user();
    let half = |class| {
        wanted(class, "pair")
            .with_number(CKA_KEY_TYPE, CKK_EC)
            .with(CKA_EC_PARAMS, P256.to_vec())
    };
    let (public, private) = (half(CKO_PUBLIC_KEY), half(CKO_PRIVATE_KEY));
    let (mut raw_public, mut raw_private) = (raw(&public), raw(&private));
    let (mut public, mut private) = (0, 0);
    let mut mechanism = plain(CKM_EC_KEY_PAIR_GEN);
    let code = unsafe {
        C_GenerateKeyPair(
            s.0,
            &mut mechanism,
            raw_public.as_mut_ptr(),
            4,
            raw_private.as_mut_ptr(),
            4,
            &mut public,
            &mut private,
        )
    };
    assert_eq!(code, CKR_OK);
    s.init(C_SignInit, plain(CKM_ECDSA_SHA256), private)
        .unwrap();
    let signature = twice(s.whole(C_Sign, b"a text")).unwrap();
    s.init(C_VerifyInit, plain(CKM_ECDSA_SHA256), public)
        .unwrap();
    assert_eq!(s.verify(b"a text", &signature), Ok(()));
}

#[test]
fn wrapping_asks_for_a_length_too() {
    let _library = library();
    let s = user();
    let (wrapping, secret) = (
        s.one(CKO_SECRET_KEY, AES),
        generate(s, &aes("mine")).unwrap(),
    );
    let wrap = |key| {
        move |out: *mut u8, len: *mut CK_ULONG| unsafe {
            C_WrapKey(s.0, &mut plain(CKM_AES_KEY_WRAP), wrapping, key, out, len)
        }
    };
    assert_eq!(asked(wrap(secret)), Ok(40));
    assert_eq!(given(39, wrap(secret)).0, CKR_BUFFER_TOO_SMALL);
    assert_eq!(given(40, wrap(secret)).2, [0x77; 40]);
    let fixed = s.one(CKO_PRIVATE_KEY, EC);
    assert_eq!(asked(wrap(fixed)), Err(CKR_KEY_UNEXTRACTABLE));
    let code = unsafe {
        C_WrapKey(
            s.0,
            &mut plain(CKM_AES_KEY_WRAP),
            4711,
            secret,
            std::ptr::null_mut(),
            &mut 0,
        )
    };
    assert_eq!(code, CKR_WRAPPING_KEY_HANDLE_INVALID);
}

#[test]
fn a_public_key_of_the_session_wraps_where_the_other_key_is() {
    let library = library();
    let s = user();
    let secret = generate(s, &aes("mine")).unwrap();
    let public = wanted(CKO_PUBLIC_KEY, "wrapping")
        .with_number(CKA_KEY_TYPE, CKK_RSA)
        .with(CKA_MODULUS, vec![0xc3; 128])
        .with(CKA_PUBLIC_EXPONENT, vec![1, 0, 1]);
    let wrapping = s.create(&public).unwrap();
    let before = library.calls();
    let wrap = |out: *mut u8, len: *mut CK_ULONG| unsafe {
        C_WrapKey(s.0, &mut plain(CKM_RSA_PKCS), wrapping, secret, out, len)
    };
    assert_eq!(given(40, wrap).2, [0x77; 40]);
    assert_eq!(library.calls(), before + 3, "lent, used, taken back");
    let other = s.create(&public.with_flag(CKA_WRAP, false)).unwrap();
    let wrap = |out: *mut u8, len: *mut CK_ULONG| unsafe {
        C_WrapKey(s.0, &mut plain(CKM_RSA_PKCS), other, secret, out, len)
    };
    assert_eq!(given(40, wrap).0, CKR_KEY_FUNCTION_NOT_PERMITTED);
}

#[test]
fn random_bytes_come_from_a_token() {
    let library = library();
    let s = open(0).unwrap();
    let before = library.calls();
    let mut bytes = vec![FILL; 70_000];
    let random = |place: &mut [u8]| unsafe {
        C_GenerateRandom(s.0, place.as_mut_ptr(), place.len() as CK_ULONG)
    };
    assert_eq!(random(&mut bytes), CKR_OK);
    assert_eq!(library.calls(), before + 2, "not too many at once");
    assert_eq!(bytes[65_536..65_540], [0, 1, 2, 3]);
    assert_eq!(random(&mut []), CKR_OK);
}

/// A token tells the public key of RSA keys alone. Without its public half no pool knows which key another one is.
#[test]
fn a_private_key_of_a_curve_is_not_on_the_token_without_its_public_half() {
    let library = library();
    let s = user();
    let public = wanted(CKO_PUBLIC_KEY, "half").with(CKA_EC_PARAMS, P256.to_vec());
    let private = wanted(CKO_PRIVATE_KEY, "half").with_flag(CKA_TOKEN, true);
    let (mut public, mut private) = (raw(&public), raw(&private));
    let mut mechanism = plain(CKM_EC_KEY_PAIR_GEN);
    let (before, mut keys) = (library.calls(), [0; 2]);
    let code = unsafe {
        C_GenerateKeyPair(
            s.0,
            &mut mechanism,
            public.as_mut_ptr(),
            public.len() as CK_ULONG,
            private.as_mut_ptr(),
            private.len() as CK_ULONG,
            &mut keys[0],
            &mut keys[1],
        )
    };
    assert_eq!(code, CKR_TEMPLATE_INCONSISTENT);
    assert_eq!(library.calls(), before);
}
