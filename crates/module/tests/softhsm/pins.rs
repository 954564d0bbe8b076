//! PINs on a token that counts wrong ones itself.

use hsmux_module::{ModuleToken, Options, change_pin};
use hsmux_token::{Kind, Secret, Token};

use crate::fixture::{create, options, state};

fn with_pin(label: &str, pin: &str) -> Options {
    Options {
        pin: Some(Secret::new(pin.into())),
        ..options(label)
    }
}

#[test]
fn a_wrong_pin_is_refused_and_a_corrected_one_serves() {
    create("wrong-pin");
    for _ in 0..3 {
        let error = ModuleToken::open(with_pin("wrong-pin", "wrong")).map(|_| ());
        assert_eq!(error.unwrap_err().kind(), Kind::PinHeld);
    }
    let record = hsmux_module::pin::list(&state()).unwrap();
    let record = record.iter().find(|r| r.label == "wrong-pin").unwrap();
    // The PIN that initialised it, and the wrong one.
    assert_eq!(
        record.pins.last().unwrap().outcome,
        hsmux_module::pin::Outcome::Refused
    );
    ModuleToken::open(options("wrong-pin")).unwrap();
}

#[test]
fn a_pin_is_changed() {
    create("new-pin");
    change_pin(&options("new-pin"), &Secret::new("another pin".into())).unwrap();
    let error = ModuleToken::open(options("new-pin")).map(|_| ());
    assert_eq!(error.unwrap_err().kind(), Kind::PinHeld);
    ModuleToken::open(with_pin("new-pin", "another pin")).unwrap();
}

#[test]
fn without_a_pin_only_public_objects_are_seen() {
    create("public");
    let token = ModuleToken::open(Options {
        pin: None,
        ..options("public")
    })
    .unwrap();
    assert!(token.objects().unwrap().objects.is_empty());
}
