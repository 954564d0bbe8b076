//! Keys and parameters that a token refuses for a mechanism: a pool refuses what the bare token refuses, and at Init.

use std::collections::BTreeMap;

use hsmux_suite::Setup;

/// SoftHSM's code for a wrong parameter; a pool says the standard's.
const CKR_ARGUMENTS_BAD: &str = "0x7";
const CKR_MECHANISM_PARAM_INVALID: &str = "0x71";
const CKR_ATTRIBUTE_VALUE_INVALID: &str = "0x13";
const CKR_KEY_SIZE_RANGE: &str = "0x62";

/// What became of each key and parameter: `good`, or the call that refused it and its code.
fn answers(setup: Setup, members: usize) -> BTreeMap<String, String> {
    let run = crate::in_turns("parameters.py", setup, members);
    let answer = |line: &str| {
        let (what, answer) = line.split_once(": ")?;
        Some((what.to_owned(), answer.to_owned()))
    };
    run.out.lines().filter_map(answer).collect()
}

#[test]
fn a_pool_refuses_at_init_what_its_tokens_refuse() {
    let bare = answers(Setup::Bare, 1);
    let refused = |code: &str| format!("C_SignInit {code}");
    let count = |code: &str| {
        let answers = bare.values();
        answers.filter(|answer| **answer == refused(code)).count()
    };
    // Both kinds of refusals are there, and what is no refusal is good.
    assert!(count(CKR_KEY_SIZE_RANGE) >= 20, "{bare:#?}");
    assert!(count(CKR_ARGUMENTS_BAD) >= 40, "{bare:#?}");
    let hmac = |size: u32| bare[&format!("hmac sha256, session key of {size} bytes")].clone();
    assert_eq!(
        [hmac(31), hmac(32)],
        [refused(CKR_KEY_SIZE_RANGE), "good".into()]
    );
    let pss = |mgf: &str| bare[&format!("pss sha256, mgf {mgf}")].clone();
    assert_eq!(
        [pss("sha1"), pss("sha256")],
        [refused(CKR_ARGUMENTS_BAD), "good".into()]
    );

    for (setup, members) in [
        (Setup::Daemon, 1),
        (Setup::Daemon, 3),
        (Setup::Embedded, 1),
        (Setup::Embedded, 3),
    ] {
        let pool = answers(setup, members);
        assert_eq!(pool.len(), bare.len(), "{setup:?} of {members}");
        for (what, bare) in &bare {
            // SoftHSM 2.6.1 unwraps it as 24 bytes: the second member would have another key.
            let uncopied = members > 1 && what == "token key of 19 bytes";
            let expected = if uncopied {
                format!("C_CreateObject {CKR_ATTRIBUTE_VALUE_INVALID}")
            } else if *bare == refused(CKR_ARGUMENTS_BAD) {
                refused(CKR_MECHANISM_PARAM_INVALID)
            } else {
                bare.clone()
            };
            assert_eq!(pool[what], expected, "{setup:?} of {members}: {what}");
        }
    }
}
