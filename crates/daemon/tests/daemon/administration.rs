//! Administration, reload, audit trail, start and end.

use std::collections::BTreeSet;
use std::fs;
use std::thread;

use hsmux_daemon::Daemon;
use hsmux_daemon::admin::{AdminClient, AdminRequest, AdminResponse, KeyRow};
use hsmux_token::{Kind, Operation, TokenFlags};
use hsmux_wire::{Answer, Call};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;

use crate::rig::{Application, PIN, Rig, events, until};

#[test]
fn members_are_parked_and_resumed_and_the_trail_says_so() {
    let rig = Rig::start("");
    let _connected = rig.application();
    let status = rig.status();
    assert_eq!(status.pid, std::process::id());
    assert_eq!(status.listeners[0].applications, 1);
    assert_eq!(status.members[0].state, "serving");

    let token = "fake".to_owned();
    let reason = "new firmware".to_owned();
    let park = |force| AdminRequest::TokenPark {
        token: token.clone(),
        reason: reason.clone(),
        force,
    };
    let admin = AdminClient::connect(&rig.path("hsmux-admin.sock")).unwrap();
    let failure = admin.ask(&park(false)).unwrap_err();
    assert!(failure.message.contains("--force"), "{failure}");
    assert_eq!(rig.status().members[0].state, "serving");
    rig.ask(&park(true));
    let member = &rig.status().members[0];
    assert_eq!(member.state, "parked");
    assert_eq!(member.reason.as_deref(), Some("new firmware"));
    rig.ask(&AdminRequest::TokenResume { token });
    assert_eq!(rig.status().members[0].state, "serving");

    let lines = rig.trail();
    let told = lines.iter().map(|line| {
        assert_eq!(line["token"], "fake", "{line}");
        assert_eq!(line["pid"], std::process::id(), "{line}");
        ["act", "outcome"].map(|field| line[field].as_str().unwrap_or_default())
    });
    let refused = rig.trail()[1]["outcome"].clone();
    let refused = refused.as_str().unwrap_or_default();
    let expected = [
        ["token-park", "begun"],
        ["token-park", refused],
        ["token-park", "begun"],
        ["token-park", "done"],
        ["token-resume", "begun"],
        ["token-resume", "done"],
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn what_fails_is_answered_and_on_the_trail() {
    let rig = Rig::start("");
    let admin = AdminClient::connect(&rig.path("hsmux-admin.sock")).unwrap();
    let reason = String::new();
    let token = "nobody".to_owned();
    let failure = admin
        .ask(&AdminRequest::TokenPark {
            token,
            reason,
            force: false,
        })
        .unwrap_err();
    assert!(failure.message.contains("nobody"), "{failure}");
    let outcome = rig.trail()[1]["outcome"].to_string();
    assert!(outcome.contains("nobody"), "{outcome}");

    let key = "pkcs11:object=absent".to_owned();
    let objects = BTreeSet::new();
    let broker_keys = false;
    let delete = AdminRequest::KeyDelete {
        key,
        objects,
        broker_keys,
    };
    let failure = admin.ask(&delete).unwrap_err();
    assert!(failure.message.contains("absent"), "{failure}");
}

#[test]
fn nothing_is_deleted_that_was_not_listed() {
    let rig = Rig::start("");
    let key = "pkcs11:type=public".to_owned();
    let AdminResponse::Keys(rows) = rig.ask(&AdminRequest::KeyFind { key: key.clone() }) else {
        panic!("no keys");
    };
    let listed = |row: &KeyRow| (row.object.class.clone(), row.object.name.clone());
    let mut objects: BTreeSet<_> = rows.iter().map(listed).collect();
    let one = objects.pop_first().unwrap();
    assert!(!objects.is_empty(), "several objects match");
    let admin = AdminClient::connect(&rig.path("hsmux-admin.sock")).unwrap();
    let delete_if = |objects: &BTreeSet<_>, broker_keys| {
        let (key, objects) = (key.clone(), objects.clone());
        admin.ask(&AdminRequest::KeyDelete {
            key,
            objects,
            broker_keys,
        })
    };
    let delete = |objects: &BTreeSet<_>| delete_if(objects, true);
    let failure = delete(&objects).unwrap_err();
    assert!(failure.message.contains("nothing was deleted"), "{failure}");
    objects.insert(one);
    // One of them is the broker's.
    let failure = delete_if(&objects, false).unwrap_err();
    assert!(failure.message.contains("--broker-keys"), "{failure}");
    // The fake token cannot delete; the request comes as far as that.
    let failure = delete(&objects).unwrap_err();
    assert!(!failure.message.contains("listed"), "{failure}");
}

#[test]
fn uses_of_keys_are_lines_where_that_is_asked_for() {
    let rig = Rig::start("[audit]\nkeys = true");
    let program = rig.application();
    program.make_session_object().unwrap();
    program.run(&Operation::Random { len: 1 }).unwrap();
    until("the line is there", || !rig.trail().is_empty());
    let lines = rig.trail();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["call"], "C_CreateObject");
    assert_eq!(lines[0]["program"], "test");
}

#[test]
fn a_reload_takes_effect_on_those_who_are_connected() {
    let rig = Rig::start("");
    let program = rig.application();
    program.login(PIN).unwrap();
    assert_eq!(program.sees().len(), 4);

    rig.configure("keys = [\"pkcs11:object=web\"]\n[[listener]]\nsocket = \"second.sock\"");
    let AdminResponse::Lines(lines) = rig.ask(&AdminRequest::Reload) else {
        panic!("no lines");
    };
    assert_eq!(lines.len(), 3, "{lines:?}");
    // The other one names no PIN.
    assert!(lines[1].contains("nobody can log in"), "{lines:?}");
    assert_eq!(program.sees(), ["web"]);
    let second = Application::connect(&rig.path("second.sock")).unwrap();
    assert_eq!(second.sees().len(), 3);

    rig.configure("");
    rig.ask(&AdminRequest::Reload);
    assert_eq!(program.sees().len(), 4);
    let closed = second.run(&Operation::Random { len: 1 }).unwrap_err();
    assert_eq!(closed.kind(), Kind::Forbidden);
    assert!(!rig.path("second.sock").exists());
}

#[test]
fn those_who_are_connected_are_told_that_their_rights_have_changed() {
    let rig = Rig::start("login = \"peer\"");
    let program = rig.application();
    program.login("").unwrap();
    let changed = |known: u64, more: &str| {
        rig.configure(more);
        rig.ask(&AdminRequest::Reload);
        match program.call(Call::Catalogue { known }).unwrap() {
            Answer::Catalogue(Some(view)) => view,
            other => panic!("still true after {more:?}: {other:?}"),
        }
    };
    let before = program.view();
    let fewer = changed(
        before.epoch,
        "login = \"peer\"\nkeys = [\"pkcs11:object=web\"]",
    );
    assert_eq!((fewer.objects.len(), fewer.logged_in), (1, true));
    let read_only = changed(fewer.epoch, "login = \"peer\"\nread_only = true");
    assert!(read_only.info.flags.contains(TokenFlags::WRITE_PROTECTED));
    // Who came in without a PIN has none by now.
    let pin = changed(read_only.epoch, "login = \"pin\"");
    assert!(!pin.logged_in);
    assert_eq!(program.sees(), ["mail", "open", "web"]);
    // Nothing has changed: nothing is sent.
    let known = pin.epoch;
    rig.ask(&AdminRequest::Reload);
    let answer = program.call(Call::Catalogue { known }).unwrap();
    assert!(matches!(answer, Answer::Catalogue(None)), "{answer:?}");
}

/// SIGHUP and SIGTERM reach [`Daemon::run`] of this whole process: one test for both.
#[test]
fn signals_are_on_the_trail_and_the_trail_follows_a_rotation_of_logs() {
    let mut rig = Rig::start("");
    let daemon = rig.daemon.take().unwrap();
    let (path, old) = (rig.path("state/audit.log"), rig.path("state/audit.log.1"));
    let acts = || -> Vec<Value> { rig.trail().iter().map(|line| line["act"].clone()).collect() };
    let running = thread::spawn(move || daemon.run());
    let token = "fake".to_owned();
    rig.ask(&AdminRequest::TokenResume { token });
    fs::rename(&path, &old).unwrap();
    // Without a handler a signal would end the tests.
    until("signals are taken", takes_signals);
    kill_process(getpid(), Signal::HUP).unwrap();
    until("it is read again", || path.exists() && acts() == ["reload"]);
    kill_process(getpid(), Signal::TERM).unwrap();
    running.join().unwrap().unwrap();
    assert_eq!(acts(), ["reload", "stop"]);
    let line = &rig.trail()[0];
    assert_eq!(line["program"], "signal SIGHUP");
    assert_eq!(line["outcome"], "done");
    assert_eq!(events(&old).len(), 2);
}

/// Whether SIGHUP and SIGTERM have handlers in this process (proc_pid_status(5), SigCgt).
fn takes_signals() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let caught = status
        .lines()
        .find_map(|l| l.strip_prefix("SigCgt:"))
        .unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    [Signal::HUP, Signal::TERM]
        .iter()
        .all(|signal| caught >> (signal.as_raw() - 1) & 1 == 1)
}

#[test]
fn a_mistake_leaves_the_configuration_as_it_was() {
    let rig = Rig::start("");
    rig.configure("kyes = []");
    let admin = AdminClient::connect(&rig.path("hsmux-admin.sock")).unwrap();
    let failure = admin.ask(&AdminRequest::Reload).unwrap_err();
    assert!(
        failure.message.contains("did you mean \"keys\""),
        "{failure}"
    );
    assert!(rig.status().config_error.unwrap().contains("kyes"));
    assert_eq!(rig.application().sees().len(), 3);
    rig.configure("");
    rig.ask(&AdminRequest::Reload);
    assert!(rig.status().config_error.is_none());
}

#[test]
fn there_is_one_daemon_and_it_leaves_nothing_behind() {
    let mut rig = Rig::start("");
    let error = Daemon::start(&rig.path("hsmux.toml")).err().unwrap();
    assert!(error.to_string().contains("pid"), "{error}");
    drop(rig.daemon.take());
    assert!(!rig.path("hsmux.sock").exists());
    assert!(!rig.path("hsmux-admin.sock").exists());
    let error = AdminClient::connect(&rig.path("hsmux-admin.sock"))
        .err()
        .unwrap();
    assert_eq!(error.kind(), Kind::NoReplica, "{error}");
}

#[test]
fn a_key_has_default_uses_if_its_token_refuses_to_forbid_others() {
    let rig = Rig::start("");
    let generate = AdminRequest::KeyGenerate {
        spec: "aes:256".parse().unwrap(),
        label: "orders".into(),
        id: None,
    };
    let AdminResponse::Keys(rows) = rig.ask(&generate) else {
        panic!("no keys");
    };
    let notes = &rows[0].notes;
    assert!(notes[0].contains("CKR_TEMPLATE_INCONSISTENT"), "{notes:?}");
}

#[test]
fn a_cka_id_of_the_broker_is_for_the_broker() {
    let rig = Rig::start("");
    let generate = AdminRequest::KeyGenerate {
        spec: "aes:256".parse().unwrap(),
        label: "orders".into(),
        // `hsmb`, 1, and something.
        id: Some("68736d620107".into()),
    };
    let admin = AdminClient::connect(&rig.path("hsmux-admin.sock")).unwrap();
    let failure = admin.ask(&generate).unwrap_err();
    assert_eq!(failure.kind, "Forbidden", "{failure}");
}
