//! The audit trail has each change of a token by a program, each failed try, and each login, also if uses of keys are not
//! audited.

use hsmux_suite::{Caller, PATIENCE, Rig, Setup, until};
use serde_json::{Value, json};

/// CKR_DEVICE_MEMORY: not done for want of a trail.
const NO_TRAIL: u64 = 0x31;
const PIN_INCORRECT: u64 = 0xa0;
const WRITE_PROTECTED: u64 = 0xe2;

/// One member, and nothing said of the trail.
fn started() -> Rig {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.start();
    rig
}

/// The lines of what programs have called, once the daemon has ended: all are written then.
fn calls(rig: &mut Rig) -> Vec<Value> {
    rig.stop();
    let mut lines = rig.trail();
    lines.retain(|line| line["call"].is_string());
    lines
}

#[test]
fn what_programs_change_has_a_line_and_what_they_use_has_none() {
    let mut rig = started();
    let mut program = Caller::open(&rig);
    for (call, arguments) in [
        ("generate", json!({"label": "pair"})),
        ("generate", json!({"label": "secret", "kind": "secret"})),
        ("store", json!({"label": "note", "value": "text"})),
        (
            "rename",
            json!({"kind": "private", "label": "pair", "name": "other"}),
        ),
        ("destroy", json!({"kind": "secret", "label": "secret"})),
        ("sign", json!({})),
        ("encrypt", json!({})),
        ("generate", json!({"label": "mine", "token": false})),
        ("destroy", json!({"kind": "private", "label": "mine"})),
    ] {
        program.ok(call, arguments);
    }
    let lines = calls(&mut rig);
    let said = |line: &Value| {
        let word = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        ["call", "class", "label"].map(word)
    };
    assert_eq!(
        lines.iter().map(said).collect::<Vec<_>>(),
        [
            ["C_GenerateKeyPair", "", "pair"],
            ["C_GenerateKey", "", "secret"],
            ["C_CreateObject", "data", "note"],
            ["C_SetAttributeValue", "private key", "pair"],
            ["C_DestroyObject", "secret key", "secret"],
        ]
    );
    for line in &lines {
        assert_eq!(line["outcome"], "done", "{line}");
        assert!(line["uid"].is_u64() && line["pid"].is_u64(), "{line}");
        let program = line["program"].as_str();
        assert!(program.is_some_and(|name| !name.is_empty()), "{line}");
    }
    // An object that was made has a name in its line, which later lines use.
    assert_eq!(lines[0]["key"], "new");
    assert_eq!(lines[0]["made"], lines[3]["key"]);
    assert_eq!(lines[1]["made"], lines[4]["key"]);
    assert_eq!(lines[3]["made"], Value::Null);
    rig.hsmux("audit verify").ok();
}

#[test]
fn nothing_is_changed_while_the_trail_cannot_be_written() {
    let rig = started();
    let mut program = Caller::open(&rig);
    let before = program.ok("objects", json!({}));
    rig.fill_the_trails_disk();
    for (call, arguments) in [
        ("generate", json!({"label": "new"})),
        ("store", json!({"label": "note", "value": "text"})),
        (
            "rename",
            json!({"kind": "private", "label": "ec", "name": "other"}),
        ),
        ("destroy", json!({"kind": "private", "label": "ec"})),
    ] {
        assert_eq!(program.ask(call, arguments), Err(NO_TRAIL), "{call}");
    }
    assert_eq!(program.ok("objects", json!({})), before);
    rig.hsmux("status")
        .ok()
        .says("programs and hsmux change nothing");
    // Uses of keys have no lines here, and need none.
    program.ok("sign", json!({}));
    program.ok("generate", json!({"label": "mine", "token": false}));

    rig.make_room_for_the_trail();
    program.ok("generate", json!({"label": "new"}));
    let refused = |line: &Value| line["gap"]["refused"].as_u64() >= Some(4);
    assert!(rig.trail().iter().any(refused), "{:?}", rig.trail());
    rig.hsmux("audit verify").ok();
}

#[test]
fn or_it_is_changed_and_lost_lines_are_counted() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.config.module += "\n[audit]\non_failure = \"continue\"\n";
    rig.start();
    let mut program = Caller::open(&rig);
    rig.fill_the_trails_disk();
    program.ok("generate", json!({"label": "new"}));
    until("a line is lost", PATIENCE, || {
        (rig.status()["audit"]["lost"].as_u64() >= Some(1)).then_some(())
    });
}

#[test]
fn what_is_tried_again_and_again_is_a_line_and_a_number() {
    const TIMES: u64 = 20;
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.config.daemon.push_str("read_only = true");
    rig.start();
    let mut program = Caller::open(&rig);
    for _ in 0..TIMES {
        let refused = program.ask("generate", json!({"label": "new"}));
        assert_eq!(refused, Err(WRITE_PROTECTED));
    }
    let lines = calls(&mut rig);
    assert!(!lines.is_empty());
    for line in &lines {
        assert_eq!(line["call"], "C_GenerateKeyPair", "{line}");
        let why = line["outcome"].as_str().unwrap_or_default();
        assert!(why.contains("read-only"), "{line}");
    }
    let mut counts = rig.trail();
    counts.retain(|line| line["act"] == "denied");
    assert!(!counts.is_empty());
    let counted = counts.iter().map(|line| {
        assert_eq!(line["what"], "C_GenerateKeyPair", "{line}");
        line["count"].as_u64().unwrap()
    });
    assert_eq!(counted.sum::<u64>() + lines.len() as u64, TIMES);
}

#[test]
fn logins_right_and_wrong_are_on_the_trail() {
    let mut rig = started();
    let mut program = Caller::start(&rig);
    program.ok("open", json!({"label": rig.label()}));
    let wrong = program.ask("login", json!({"pin": "nobodys-pin"}));
    assert_eq!(wrong, Err(PIN_INCORRECT));
    program.ok("login", json!({"pin": rig.pin()}));
    rig.stop();
    let mut lines = rig.trail();
    lines.retain(|line| line["act"] == "login");
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str()).collect();
    assert_eq!(outcomes.len(), 2, "{lines:?}");
    assert!(outcomes[0].is_some_and(|why| why.contains("not the pool's PIN")));
    assert_eq!(outcomes[1], Some("done"));
    let all = format!("{lines:?}");
    assert!(!all.contains("nobodys-pin") && !all.contains(&rig.pin()));
}
