//! Lines of the trail about programs, whether uses of keys are recorded or not.

use std::cell::Cell;

use hsmux_token::{Attributes, Blob, Error, Kind, Mechanism, ObjectRef, Operation, Verb, ck};
use serde_json::Value;

use crate::rig::{PIN, Rig, create, public_key, until};

/// The calls on the trail.
fn calls(rig: &Rig) -> Vec<Value> {
    let mut lines = rig.trail();
    lines.retain(|line| line["call"].is_string());
    lines
}

fn key() -> ObjectRef {
    public_key("web").id.into()
}

fn usage() -> Operation {
    Operation::Use {
        verb: Verb::Encrypt,
        key: key(),
        mechanism: Mechanism::plain(ck::CKM_RSA_PKCS),
        data: Blob::from(b"data".to_vec()),
    }
}

/// One of each that makes, changes or destroys what lasts, and is on the token or not.
fn changes(object: ObjectRef, token: bool) -> Vec<Operation> {
    let mechanism = || Mechanism::plain(ck::CKM_AES_KEY_GEN);
    let template = || Attributes::default().with_flag(ck::CKA_TOKEN, token);
    vec![
        create("new", token),
        Operation::Generate {
            mechanism: mechanism(),
            template: template(),
        },
        Operation::GeneratePair {
            mechanism: Mechanism::plain(ck::CKM_EC_KEY_PAIR_GEN),
            public: template(),
            private: template(),
        },
        Operation::Derive {
            key: key(),
            mechanism: mechanism(),
            template: template(),
        },
        Operation::Unwrap {
            unwrapping: key(),
            mechanism: mechanism(),
            wrapped: Blob::from(b"wrapped".to_vec()),
            template: template(),
        },
        Operation::Copy {
            object: key(),
            template: template(),
        },
        Operation::SetAttributes {
            object,
            template: Attributes::default().with(ck::CKA_LABEL, b"other".to_vec()),
        },
        Operation::Destroy { object },
    ]
}

#[test]
fn changes_of_a_tokens_objects_are_lines_and_no_others() {
    // To be refused is an outcome as any other, and the token in memory can do little else.
    let rig = Rig::start("read_only = true");
    let program = rig.application();
    program.login(PIN).unwrap();
    let mine = program.make_session_object().unwrap();
    let passing = changes(ObjectRef::Session(mine), false);
    let lasting = changes(key(), true);
    for operation in passing.iter().chain([&usage()]).chain(&lasting) {
        drop(program.run(operation));
    }
    until("a line for each", || calls(&rig).len() >= lasting.len());
    let found = calls(&rig);
    assert!(
        found.iter().all(|line| line["outcome"] != "done"),
        "{found:?}"
    );
    let found: Vec<_> = found.iter().map(|line| line["call"].as_str()).collect();
    let expected: Vec<_> = lasting.iter().map(|one| Some(one.call())).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_use_is_a_line_and_its_init_is_none() {
    let rig = Rig::start("[audit]\nkeys = true");
    let program = rig.application();
    program.login(PIN).unwrap();
    let begin = Operation::Begin {
        verb: Verb::Encrypt,
        key: key(),
        mechanism: Mechanism::plain(ck::CKM_RSA_PKCS),
    };
    for operation in [begin, usage()] {
        drop(program.run(&operation));
    }
    let used = || calls(&rig).iter().any(|line| line["call"] == "C_Encrypt");
    until("the use has its line", used);
    let found = calls(&rig);
    assert_eq!(found.len(), 1, "{found:?}");
}

/// Each PIN that was looked at has a line; those that were not are counted.
#[test]
fn logins_are_lines_as_often_as_a_pin_was_looked_at() {
    let mut rig = Rig::start("");
    rig.application().login(PIN).unwrap();
    let (wrong, throttled) = (Cell::new(0), Cell::new(0));
    until("no PIN is looked at", || {
        let refused = rig.application().login("wrong").unwrap_err();
        let count = match refused.kind() {
            Kind::PinIncorrect => &wrong,
            _ => &throttled,
        };
        count.set(count.get() + 1);
        throttled.get() == 5
    });
    drop(rig.daemon.take());
    let lines = rig.trail();
    let outcomes = lines.iter().filter(|line| line["act"] == "login");
    let outcomes: Vec<_> = outcomes.map(|line| line["outcome"].to_string()).collect();
    let of = |what: &str| outcomes.iter().filter(|why| why.contains(what)).count() as u64;
    assert_eq!(of("\"done\""), 1, "{outcomes:?}");
    assert_eq!(of("not the pool's PIN"), wrong.get(), "{outcomes:?}");
    let counts = lines.iter().filter(|line| line["act"] == "denied");
    let counted: u64 = counts.map(|line| line["count"].as_u64().unwrap()).sum();
    let heard = of("wrong PINs in a row");
    assert!(heard > 0, "{outcomes:?}");
    assert_eq!(heard + counted, throttled.get(), "{lines:?}");
}

/// One that was taken over could fill the log and the trail.
#[test]
fn refused_connections_of_a_service_are_a_line_and_a_number() {
    let mut rig = Rig::start("");
    let context = &rig.daemon.as_ref().unwrap().running().shared;
    let why = Error::token(Kind::Busy, "1024 connections are open");
    for _ in 0..5 {
        context.refuse_service("gateway", &why);
    }
    drop(rig.daemon.take());
    let lines = rig.trail();
    let of = |act: &str| -> Vec<_> { lines.iter().filter(|line| line["act"] == act).collect() };
    let (refused, counts) = (of("connect"), of("denied"));
    assert_eq!(refused.len(), 1, "{lines:?}");
    assert_eq!(refused[0]["actor"], "gateway");
    assert_eq!(counts.len(), 1, "{lines:?}");
    assert_eq!(counts[0]["count"], 4);
}

/// A change that fails before any token is asked costs as little as one that is denied.
#[test]
fn changes_that_come_to_nothing_are_lines_up_to_a_hundred_and_a_number() {
    let mut rig = Rig::start("");
    let program = rig.application();
    program.login(PIN).unwrap();
    let in_vain = Operation::Derive {
        key: key(),
        mechanism: Mechanism::plain(ck::CKM_AES_KEY_GEN),
        template: Attributes::default().with_flag(ck::CKA_TOKEN, true),
    };
    for _ in 0..150 {
        program.run(&in_vain).unwrap_err();
    }
    drop(rig.daemon.take());
    assert_eq!(calls(&rig).len(), 100);
    let lines = rig.trail();
    let counts = lines.iter().filter(|line| line["act"] == "denied");
    let counted: Vec<_> = counts
        .map(|line| (&line["what"], line["count"].as_u64()))
        .collect();
    assert_eq!(counted, [(&"C_DeriveKey".into(), Some(50))]);
}
