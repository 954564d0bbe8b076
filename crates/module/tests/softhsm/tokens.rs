//! Data of a token, and requests without keys.

use hsmux_module::{ModuleToken, Options, slots};
use hsmux_token::ck::*;
use hsmux_token::{Kind, Operation, Token, TokenFlags, Uri};

use crate::fixture::{MODULE, Run, create, label_of, on_token, options, token};

#[test]
fn a_token_says_what_it_is() {
    let token = token("info");
    let info = token.info();
    assert_eq!(info.label, "info");
    assert_eq!(info.manufacturer, "SoftHSM project");
    assert_eq!(info.serial.len(), 16);
    assert_eq!(info.lanes, 2);
    assert!(info.flags.contains(TokenFlags::TOKEN_INITIALIZED));
    assert!(info.mechanisms.is_sorted_by_key(|m| m.kind));
    assert!(info.mechanism(CKM_ECDSA).is_some());
    let again = Options {
        slot: Uri {
            serial: Some(info.serial.clone()),
            ..Uri::default()
        },
        ..options("info")
    };
    assert_eq!(ModuleToken::open(again).unwrap().info().label, "info");
}

#[test]
fn a_token_that_is_not_there_or_not_the_only_one_says_what_is_there() {
    create("one");
    create("two");
    for (selector, problem) in [
        (label_of("three"), "no token fits"),
        (Uri::default(), "more than one"),
    ] {
        let wanted = Options {
            slot: selector,
            ..options("one")
        };
        let error = ModuleToken::open(wanted).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), Kind::Environment);
        let text = error.to_string();
        assert!(
            text.contains(problem) && text.contains("\"two\" (serial "),
            "{text}"
        );
    }
    assert!(slots(MODULE.as_ref()).unwrap().len() >= 3);
}

#[test]
fn random_bytes_differ_and_have_a_limit() {
    let token = token("random");
    let random = |len| token.bytes(Operation::Random { len });
    let (one, two) = (random(32).unwrap(), random(32).unwrap());
    assert_eq!(one.len(), 32);
    assert_ne!(one, two);
    assert_eq!(random(u32::MAX).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn a_nested_template_does_not_reach_the_module() {
    let token = token("nested");
    let template = on_token(1).with(CKA_UNWRAP_TEMPLATE, vec![0x41; 24]);
    let error = token
        .run(Operation::Create {
            template,
            near: None,
        })
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}
