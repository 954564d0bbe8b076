//! A wrong PIN is shown once, whatever happens.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use hsmux_module::pin;
use hsmux_token::{Kind, Uri};

use crate::child::{Work, start, succeeds};
use crate::fixture::{StandIn, until};

fn held(result: hsmux_token::Result<std::sync::Arc<hsmux_module::ModuleToken>>) -> String {
    let error = result.map(|_| "open").unwrap_err();
    assert_eq!(error.kind(), Kind::PinHeld, "{error}");
    error.to_string()
}

/// The file with the token's record.
fn record_of(standin: &StandIn) -> PathBuf {
    let pins = standin.folder.path().join("state/pins");
    let mut files = std::fs::read_dir(pins).unwrap().map(|e| e.unwrap().path());
    let record = files.find(|path| path.extension().is_some_and(|e| e == "json"));
    record.unwrap()
}

#[test]
fn a_wrong_pin_is_shown_once() {
    let standin = StandIn::new("");
    let message = held(standin.open("wrong"));
    assert!(
        message.starts_with("member: the token refused this PIN (C_Login: CKR_PIN_INCORRECT"),
        "{message}"
    );
    for _ in 0..3 {
        let message = held(standin.open("wrong"));
        assert!(message.contains("hsmux pin release"), "{message}");
        assert!(!succeeds(&standin, Work::Open, "wrong"));
    }
    assert_eq!(standin.shown(), ["C_Login user wrong"]);

    // The PIN was corrected: this host's own refusal alone explains the low counter.
    standin.open("1234").unwrap();
    assert_eq!(
        standin.shown(),
        ["C_Login user wrong", "C_Login user right"]
    );
    held(standin.open("wrong"));
    assert_eq!(standin.shown().len(), 2);
}

#[test]
fn two_wrong_pins_do_not_lock_a_token_of_three_tries() {
    let standin = StandIn::new("");
    held(standin.open("wrong"));
    held(standin.open("also wrong"));
    held(standin.open("wrong as well"));
    held(standin.open("1234"));
    assert_eq!(standin.shown().len(), 2);
}

#[test]
fn many_processes_with_one_wrong_pin_show_it_once() {
    let standin = StandIn::new("");
    let children: Vec<_> = (0..4)
        .map(|_| start(&standin, Work::Open, "wrong"))
        .collect();
    for mut child in children {
        assert!(!child.wait().unwrap().success());
    }
    assert_eq!(standin.shown(), ["C_Login user wrong"]);
}

#[test]
fn a_login_that_was_killed_is_not_tried_again_by_itself() {
    let standin = StandIn::new("hang_in_login = true");
    let mut child = start(&standin, Work::Open, "1234");
    until("the PIN is shown", || standin.shown().len() == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    standin.set("");
    let message = held(standin.open("1234"));
    assert!(message.contains("unknown"), "{message}");
    assert_eq!(standin.shown().len(), 1);

    let state = standin.folder.path().join("state");
    let record = &pin::list(&state).unwrap()[0];
    assert_eq!(record.pins[0].outcome, pin::Outcome::Attempting);
    let other = Uri {
        token: Some("other".into()),
        ..Uri::default()
    };
    assert!(pin::release(&state, &other).unwrap().is_empty());
    held(standin.open("1234"));
    assert_eq!(pin::release(&state, &Uri::default()).unwrap().len(), 1);
    standin.open("1234").unwrap();
    assert_eq!(standin.shown().len(), 2);
}

#[test]
fn a_pin_that_was_right_before_logs_in_after_a_crash() {
    let standin = StandIn::new("");
    for low in ["", "pin_flags = \"low\""] {
        standin.set(low);
        assert!(succeeds(&standin, Work::Open, "1234"));
        standin.set("crash_in_login = true");
        assert!(!succeeds(&standin, Work::Open, "1234"));
    }
    standin.set("");
    assert!(succeeds(&standin, Work::Open, "1234"));
    assert_eq!(standin.shown().len(), 5);
}

#[test]
fn after_a_second_crash_in_a_row_a_person_is_asked() {
    let standin = StandIn::new("");
    standin.open("1234").unwrap();
    standin.set("crash_in_login = true");
    for _ in 0..4 {
        assert!(!succeeds(&standin, Work::Open, "1234"));
    }
    standin.set("");
    held(standin.open("1234"));
    assert_eq!(standin.shown().len(), 3);
    let state = standin.folder.path().join("state");
    pin::release(&state, &Uri::default()).unwrap();
    standin.open("1234").unwrap();
}

/// It may have changed meanwhile, on a token that does not report its counter.
#[test]
fn a_pin_that_was_right_before_is_held_after_an_unknown_answer() {
    for code in [0x5, 0x6, 0x30, 0xe1] {
        let standin = StandIn::new("");
        standin.open("1234").unwrap();
        standin.set(&format!("login_error = {code}"));
        for _ in 0..3 {
            held(standin.open("1234"));
        }
        standin.set("");
        let message = held(standin.open("1234"));
        assert!(message.contains("hsmux pin release"), "{message}");
        assert_eq!(standin.shown().len(), 2, "CK_RV 0x{code:x}");
    }
}

#[test]
fn a_general_error_of_a_login_may_have_cost_a_try() {
    let standin = StandIn::new("login_error = 5");
    let message = held(standin.open("1234"));
    assert!(message.contains("CKR_GENERAL_ERROR"), "{message}");
    standin.set("");
    held(standin.open("1234"));
    assert_eq!(standin.shown().len(), 1);
}

#[test]
fn an_error_before_the_pin_costs_nothing() {
    // CKR_USER_PIN_NOT_INITIALIZED
    let standin = StandIn::new("login_error = 0x102");
    let error = standin.open("1234").map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Some(0x102));
    standin.set("");
    standin.open("1234").unwrap();
}

#[test]
fn a_low_counter_stops_a_pin_that_has_never_been_right() {
    let standin = StandIn::new("pin_flags = \"low\"");
    let message = held(standin.open("1234"));
    assert!(message.contains("counter is low"), "{message}");
    assert!(standin.shown().is_empty());
    let state = standin.folder.path().join("state");
    assert_eq!(
        pin::list(&state).unwrap()[0].pins[0].outcome,
        pin::Outcome::Held
    );
    pin::release(&state, &Uri::default()).unwrap();
    standin.open("1234").unwrap();
}

#[test]
fn the_last_try_is_a_persons() {
    let standin = StandIn::new("");
    standin.open("1234").unwrap();
    standin.set("pin_flags = \"final\"");
    let message = held(standin.open("1234"));
    assert!(message.contains("one more wrong PIN locks it"), "{message}");
    standin.set("pin_flags = \"locked\"");
    held(standin.open("1234"));
    assert_eq!(standin.shown().len(), 1);
    // An operator has logged in with the vendor's tool.
    standin.set("");
    standin.open("1234").unwrap();
}

#[test]
fn without_a_record_there_is_no_login() {
    let standin = StandIn::new("");
    let state = standin.folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("pins"), "in the way").unwrap();
    let error = standin.open("1234").map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), Kind::Environment);
    let path = state.display().to_string();
    assert!(error.to_string().contains(&path), "{error}");
    assert!(standin.shown().is_empty());
}

/// The daemon reads, with a user of its own, records that root's command wrote.
#[test]
fn records_belong_to_the_owner_of_the_state_folder() {
    let standin = StandIn::new("");
    let state = standin.folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let other = rustix::process::geteuid().is_root().then_some(65534);
    chown(&state, other, other).unwrap();
    held(standin.open("wrong"));
    let owner = |path: &Path| path.metadata().map(|is| (is.uid(), is.gid())).unwrap();
    let within = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().path()).collect::<Vec<_>>()
    };
    let pins = within(&state.join("pins"));
    assert_eq!(
        pins.len(),
        4,
        "the key, a record, its lock and that of starts: {pins:?}"
    );
    for path in within(&state).iter().chain(&pins) {
        assert_eq!(owner(path), owner(&state), "{}", path.display());
    }
}

#[test]
fn where_no_record_can_be_written_there_is_no_login() {
    let standin = StandIn::new("");
    standin.open("1234").unwrap();
    let draft = record_of(&standin).with_extension("json.new");
    std::fs::create_dir(draft).unwrap();
    let error = standin.open("wrong").map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), Kind::Environment);
    assert!(error.to_string().contains("Is a directory"), "{error}");
    assert_eq!(standin.shown(), ["C_Login user right"]);
}

#[test]
fn a_damaged_record_is_not_an_empty_one() {
    let standin = StandIn::new("");
    held(standin.open("wrong"));
    let record = record_of(&standin);
    let text = std::fs::read_to_string(&record).unwrap();
    assert!(!text.contains("wrong"), "{text}");
    std::fs::write(&record, &text[..text.len() / 2]).unwrap();
    let error = standin.open("wrong").map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), Kind::Environment);
    assert_eq!(standin.shown().len(), 1);
}

#[test]
fn a_second_token_of_one_process_does_not_log_in_again() {
    let standin = StandIn::new("");
    let _first = standin.open("1234").unwrap();
    let _second = standin.open("1234").unwrap();
    assert_eq!(standin.shown(), ["C_Login user right"]);
}

#[test]
fn a_token_that_was_closed_is_opened_and_logged_in_anew() {
    let standin = StandIn::new("");
    for opened in 1..4 {
        drop(standin.open("1234").unwrap());
        assert_eq!(standin.shown().len(), opened);
    }
}
