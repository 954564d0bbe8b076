//! Keys in use are copied as session objects, and checked again.

use std::process::Command;
use std::time::{Duration, Instant};

use hsmux_module::{ModuleToken, Options};
use hsmux_software::PublicKey;
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Kind, Mechanism, ObjectId, ObjectRef, Operation, Token, Verb};

use crate::fixture::{
    MODULE, PIN, Run, aes, create, ec_pair, ec_pair_of, on_token, options, soon, token,
};
use crate::keys::with;
use crate::objects::calls_of;

fn sign(key: ObjectId) -> Operation {
    with(Verb::Sign, key, Mechanism::plain(CKM_ECDSA), &[7; 32])
}

/// Uses the key until it has a copy.
fn copied(token: &ModuleToken, key: ObjectId) {
    copied_by(token, &sign(key));
}

fn copied_by(token: &ModuleToken, used: &Operation) {
    let end = soon();
    while calls_of("C_CopyObject", || {
        token.bytes(used.clone()).unwrap();
    }) == 0
    {
        assert!(Instant::now() < end, "the key is not copied");
    }
}

/// Uses the key until it is refused, within a tenth of a second.
fn refused(token: &ModuleToken, key: ObjectId) -> hsmux_token::Error {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        if let Err(error) = token.bytes(sign(key)) {
            return error;
        }
        assert!(Instant::now() < end, "the key is still used");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_key_in_use_is_copied_once_and_signs_as_itself() {
    let token = token("copies");
    let mut pair = token.made(ec_pair(1));
    let (key, public) = (pair.remove(1).object.id, pair.remove(0).object);
    let public = PublicKey::from_attributes(&public.attributes).unwrap();
    let before = token.objects().unwrap();
    copied(&token, key);
    let mut signatures = Vec::new();
    let copies = calls_of("C_CopyObject", || {
        signatures.extend((0..50).map(|_| token.bytes(sign(key)).unwrap()));
    });
    assert_eq!(copies, 0);
    for signature in signatures {
        let raw = Mechanism::plain(CKM_ECDSA);
        public.verify(&raw, &[7; 32], &signature).unwrap();
    }
    let after = token.objects().unwrap();
    assert_eq!(before.objects, after.objects, "copies are no keys");
}

#[test]
fn a_key_that_is_used_now_and_then_is_not_copied() {
    let token = token("copies-rarely");
    let keys = [1, 2].map(|id| token.made(ec_pair(id)).remove(1).object.id);
    let copies = calls_of("C_CopyObject", || {
        for key in keys.iter().cycle().take(20) {
            token.bytes(sign(*key)).unwrap();
        }
    });
    assert_eq!(copies, 0, "neither was used twice in a row");
}

#[test]
fn a_key_that_another_process_deletes_is_used_no_longer() {
    let label = "copies-deleted";
    let token = token(label);
    let key = token.made(ec_pair(1)).remove(1).object.id;
    copied(&token, key);
    let pin = format!("--login --pin {PIN}");
    let line = format!(
        "--module {MODULE} --token-label {label} {pin} --delete-object --type privkey --id 01"
    );
    let tool = Command::new("pkcs11-tool").args(line.split(' ')).status();
    assert!(tool.unwrap().success());
    assert_eq!(refused(&token, key).kind(), Kind::UnknownObject);
}

/// Without further uses, only a scan notices the missing key.
#[test]
fn a_look_around_the_token_ends_the_copy_of_a_key_that_is_gone() {
    let label = "copies-lost";
    let (token, other) = (token(label), ModuleToken::open(options(label)).unwrap());
    let [gone, stays] = [1, 2].map(|id| token.made(ec_pair(id)).remove(1).object.id);
    copied(&token, gone);
    copied(&token, stays);
    let object = ObjectRef::Token(gone);
    other.run(Operation::Destroy { object }).unwrap();
    let ended = calls_of("C_DestroyObject", || {
        assert_eq!(token.look().unwrap().gone, [gone]);
    });
    assert_eq!(ended, 1);
    let more = calls_of("C_CopyObject", || drop(token.bytes(sign(stays)).unwrap()));
    assert_eq!(more, 0, "the other one is still there");
}

/// The other process is a second login to the token in this one.
#[test]
fn a_key_that_may_sign_no_more_does_not() {
    let label = "copies-changed";
    let (token, other) = (token(label), ModuleToken::open(options(label)).unwrap());
    let key = token.made(ec_pair(1)).remove(1).object.id;
    copied(&token, key);
    let forbidden = Operation::SetAttributes {
        object: key.into(),
        template: Attributes::default().with_flag(CKA_SIGN, false),
    };
    other.run(forbidden).unwrap();
    let error = refused(&token, key);
    assert_eq!(
        error.code(),
        Some(CKR_KEY_FUNCTION_NOT_PERMITTED),
        "{error}"
    );
}

/// The copy still refuses it, unlike the key.
#[test]
fn what_a_key_may_do_by_now_it_does_at_once() {
    let label = "copies-allowed";
    let (token, other) = (token(label), ModuleToken::open(options(label)).unwrap());
    let key = token.made(aes(1)).remove(0).object.id;
    let may_decrypt = |may| Operation::SetAttributes {
        object: key.into(),
        template: Attributes::default().with_flag(CKA_DECRYPT, may),
    };
    token.run(may_decrypt(false)).unwrap();
    let block = |verb| with(verb, key, Mechanism::plain(CKM_AES_ECB), &[7; 16]);
    copied_by(&token, &block(Verb::Encrypt));
    let error = token.bytes(block(Verb::Decrypt)).unwrap_err();
    assert_eq!(
        error.code(),
        Some(CKR_KEY_FUNCTION_NOT_PERMITTED),
        "{error}"
    );
    other.run(may_decrypt(true)).unwrap();
    token.bytes(block(Verb::Decrypt)).unwrap();
}

#[test]
fn a_key_that_is_destroyed_here_is_gone_at_once() {
    let token = token("copies-destroyed");
    let key = token.made(ec_pair(1)).remove(1).object.id;
    copied(&token, key);
    let object = ObjectRef::Token(key);
    token.run(Operation::Destroy { object }).unwrap();
    let error = token.bytes(sign(key)).unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownObject, "{error}");
}

#[test]
fn a_key_that_cannot_be_copied_is_used_as_it_is() {
    let token = token("copies-refused");
    let half = on_token(1).with_flag(CKA_COPYABLE, false);
    let key = token.made(ec_pair_of(half)).remove(1).object.id;
    let tried = calls_of("C_CopyObject", || {
        (0..20).for_each(|_| drop(token.bytes(sign(key)).unwrap()));
    });
    assert_eq!(tried, 1, "and is not tried again");
}

#[test]
fn who_wants_no_copies_has_none() {
    let label = "copies-off";
    create(label);
    let token = ModuleToken::open(Options {
        copies: Some(false),
        ..options(label)
    });
    let token = token.unwrap();
    let key = token.made(ec_pair(1)).remove(1).object.id;
    let copies = calls_of("C_CopyObject", || {
        (0..20).for_each(|_| drop(token.bytes(sign(key)).unwrap()));
    });
    assert_eq!(copies, 0);
}
