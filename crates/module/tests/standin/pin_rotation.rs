//! Changes of a PIN that may be interrupted.

use hsmux_module::{change_pin, init_pin};
use hsmux_token::{Kind, Secret};

use crate::child::{Work, succeeds};
use crate::fixture::StandIn;

fn secret(pin: &str) -> Secret {
    Secret::new(pin.into())
}

#[test]
fn a_changed_pin_replaces_the_old_one() {
    let standin = StandIn::new("");
    standin.open("1234").unwrap();
    change_pin(&standin.with_pin("1234"), &secret("new-pin")).unwrap();
    let shown = standin.shown().len();
    // The old PIN is known to be wrong: it costs no try.
    assert_eq!(
        standin.open("1234").map(|_| ()).unwrap_err().kind(),
        Kind::PinHeld
    );
    assert_eq!(standin.shown().len(), shown);
    standin.open("new-pin").unwrap();
    change_pin(&standin.with_pin("new-pin"), &secret("1234")).unwrap();
    standin.open("1234").unwrap();
}

#[test]
fn a_change_from_a_wrong_pin_is_refused_once() {
    let standin = StandIn::new("");
    for _ in 0..2 {
        let error = change_pin(&standin.with_pin("wrong"), &secret("new-pin")).unwrap_err();
        assert_eq!(error.kind(), Kind::PinHeld, "{error}");
    }
    assert_eq!(standin.shown(), ["C_SetPIN user wrong"]);
}

#[test]
fn a_change_that_was_broken_off_is_repeated() {
    for side in ["before", "after"] {
        let standin = StandIn::new("");
        standin.open("1234").unwrap();
        standin.set(&format!("crash_in_set_pin = {side:?}"));
        assert!(!succeeds(&standin, Work::ChangePin, "1234"));
        standin.set("");
        change_pin(&standin.with_pin("1234"), &secret("new-pin")).unwrap();
        standin.open("new-pin").unwrap();
        let wrong = standin
            .shown()
            .iter()
            .filter(|s| s.ends_with("wrong"))
            .count();
        assert!(wrong <= 1, "{side}: {:?}", standin.shown());
    }
}

#[test]
fn after_a_change_that_was_broken_off_either_pin_may_log_in() {
    let standin = StandIn::new("");
    standin.open("1234").unwrap();
    standin.set("crash_in_set_pin = \"after\"");
    assert!(!succeeds(&standin, Work::ChangePin, "1234"));
    standin.set("");
    // A daemon restarts with the old PIN before the change is repeated.
    assert_eq!(
        standin.open("1234").map(|_| ()).unwrap_err().kind(),
        Kind::PinHeld
    );
    standin.open("new-pin").unwrap();
}

#[test]
fn the_security_officer_sets_a_pin() {
    let standin = StandIn::new("");
    init_pin(&standin.with_pin(""), &secret("12345678"), &secret("fresh")).unwrap();
    standin.open("fresh").unwrap();
    for _ in 0..2 {
        let error = init_pin(&standin.with_pin(""), &secret("no"), &secret("other")).unwrap_err();
        assert_eq!(error.kind(), Kind::PinHeld);
    }
    let wrong = standin
        .shown()
        .iter()
        .filter(|s| *s == "C_Login so wrong")
        .count();
    assert_eq!(wrong, 1);
}
