//! The doctor reports each problem once, with its member and with advice.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use hsmux_suite::{Caller, MemberConfig, Rig, Setup, StandIn, gateway, until};
use serde_json::{Value, json};

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A member whose PIN is refused, one whose PIN counter is low, and one that serves.
fn three() -> (Rig, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["good", "low", "refused"]);
    tokens.set("low", "pin_flags = \"low\"");
    rig.write_pin("refused", "not-the-pin");
    (rig, tokens)
}

fn start(rig: &mut Rig) {
    rig.start_daemon();
    rig.wait_for_members(1);
    until("two members are parked", PATIENCE, || {
        (rig.members_in("parked").len() == 2).then_some(())
    });
}

/// The findings about somebody or something.
fn findings(rig: &Rig, about: &str) -> Vec<Value> {
    let found = rig.hsmux("doctor --json").finish();
    assert_eq!(found.code, Some(3), "{}", found.err);
    let mut found: Vec<Value> = serde_json::from_str(&found.out).expect("JSON from hsmux doctor");
    found.retain(|finding| finding["about"] == about);
    found
}

#[test]
fn a_refused_pin_is_told_once() {
    let (mut rig, _tokens) = three();
    start(&mut rig);
    let now = rig.hsmux("status").ok();
    now.says("\nrefused: the token refused this PIN (C_Login: CKR_PIN_INCORRECT")
        .says("`hsmux token resume refused`")
        .says("`hsmux pin release refused`")
        .says("`hsmux pin release low`");
    assert_eq!(now.out.matches("it is not tried again").count(), 1);
    assert!(!now.out.contains("before"), "{}", now.out);
    rig.stop();

    start(&mut rig);
    let later = rig.hsmux("status").ok();
    later.says("\nrefused: the token refused this PIN before, so it is not tried again");
    let low = "\nlow: the token's PIN counter is low, and this PIN has never been right on it";
    later.says(low);
    for (member, outcome) in [
        ("refused", "refused by the token"),
        ("low", "counter is low"),
    ] {
        let found = findings(&rig, member);
        let errors: Vec<_> = found.iter().filter(|f| f["level"] == "error").collect();
        let [held] = errors[..] else {
            panic!("{found:#?}");
        };
        let (problem, advice) = (&held["problem"], held["advice"].as_str().unwrap());
        assert!(problem.as_str().unwrap().contains(outcome), "{held}");
        assert!(
            advice.contains(&format!("hsmux pin release {member}")),
            "{held}"
        );
    }
}

#[test]
fn a_key_that_cannot_be_served_says_so() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["asks"]);
    tokens.set("asks", "always_authenticate = true");
    rig.start();
    let told =
        "private key \"ec\" on asks: CKA_ALWAYS_AUTHENTICATE: each use asks for the PIN again";
    until("the key is told", PATIENCE, || {
        let listed = rig.hsmux("key list").ok();
        listed.out.contains(told).then_some(())
    });
    rig.hsmux("status")
        .ok()
        .says("asks: private key \"ec\": CKA_ALWAYS_AUTHENTICATE");
    rig.hsmux("key verify").fails().says(told);
    let found = findings(&rig, "private key \"ec\"");
    let [asks] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!(asks["advice"], "make a key without it to have it served");
}

#[test]
fn a_file_that_is_no_module_is_named() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    let text = rig.path("text.so");
    fs::write(&text, "no library at all").unwrap();
    let files = [
        ("text", text, ""),
        (
            "library",
            "/usr/lib/x86_64-linux-gnu/libm.so.6".into(),
            "C_GetFunctionList",
        ),
    ];
    for (label, module, _) in &files {
        rig.config.members.push(MemberConfig {
            module: module.clone(),
            ..MemberConfig::softhsm(label)
        });
        rig.write_pin(label, "1234");
    }
    rig.start_daemon();
    rig.wait_for_members(1);
    for (label, module, why) in &files {
        let found = findings(&rig, label);
        let [finding] = &found[..] else {
            panic!("{found:#?}");
        };
        assert_eq!(finding["level"], "error");
        let problem = finding["problem"].as_str().unwrap();
        let expected = format!("{} cannot be loaded: ", module.display());
        assert!(problem.starts_with(&expected), "{problem}");
        for twice in [module.to_str().unwrap(), "cannot be loaded"] {
            assert_eq!(problem.matches(twice).count(), 1, "{problem}");
        }
        assert!(problem.contains(why), "{problem}");
        let advice = "install the vendor's module, or correct module =";
        assert_eq!(finding["advice"], advice);
    }
}

#[test]
fn a_key_that_can_be_taken_out_of_its_token_is_told() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    for key in ["01 --label open --extractable", "02 --label closed"] {
        rig.softhsm
            .tool("hsm1")
            .args("--keygen --key-type AES:32 --sensitive --id")
            .args(key)
            .ok();
    }
    rig.start();
    let found = findings(&rig, "secret key \"open\"");
    let [open] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!(open["level"], "warning");
    let problem = "it is extractable: who has the PIN can take it out of the token";
    assert_eq!(open["problem"], problem);
    let advice = open["advice"].as_str().unwrap();
    assert!(advice.contains("hsmux key generate"), "{advice}");
    assert!(findings(&rig, "secret key \"closed\"").is_empty());
}

#[test]
fn what_a_member_has_yet_to_make_up_for_is_told_until_it_has() {
    let rig = Rig::new(Setup::Daemon);
    let mut program = Caller::open(&rig);
    rig.hsmux("token park hsm2").ok();
    program.ok("store", json!({"label": "note", "value": "text"}));
    let owes = "hsm2 owes 1 change of its token's objects";
    rig.hsmux("status").ok().says(owes);
    let debts = &rig.status()["pool"]["debts"];
    assert_eq!(debts[0]["member"], "hsm2", "{debts}");
    assert_eq!((&debts[0]["changes"], &debts[1]), (&json!(1), &Value::Null));
    let found = findings(&rig, "changes of hsm2");
    let [debt] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!(debt["level"], "warning");
    let advice = debt["advice"].as_str().unwrap();
    assert!(advice.starts_with("bring hsm2 back"), "{advice}");
    // A deleted object is not copied any more, and can be read nowhere.
    program.ok("destroy", json!({"kind": "data", "label": "note"}));
    rig.hsmux("status").ok().says(owes);
    rig.hsmux("token resume hsm2").ok();
    rig.wait_for_members(3);
    until("nothing is owed", PATIENCE, || {
        let debts = &rig.status()["pool"]["debts"];
        debts.as_array()?.is_empty().then_some(())
    });
    rig.hsmux("status --check").ok().never_says("owes");
}

/// The daemon loads no module itself, whatever the file says.
#[test]
fn a_member_that_asks_for_a_thread_has_a_worker_and_a_note() {
    let note = "note: hsm1: isolation = \"thread\" is for [module] mode = \"embedded\"";
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.config.members[0]
        .more
        .push_str("isolation = \"thread\"");
    rig.start();
    assert_eq!(rig.workers().len(), 2);
    let log = rig.daemon.as_ref().expect("a daemon").log();
    assert!(log.contains("the daemon uses worker processes"), "{log}");
    let daemon = rig.daemon.as_ref().expect("a daemon").id();
    let maps = fs::read_to_string(format!("/proc/{daemon}/maps")).expect("its maps");
    assert!(!maps.contains("softhsm"), "a module is in the daemon");
    let said = rig.hsmux("doctor").ok();
    said.says(note)
        .says("remove isolation")
        .says("nothing is wrong")
        .never_says("note: hsm2");
}

/// What listens on a port is another program: the doctor says so of each place where the daemon would listen.
#[test]
fn a_port_that_another_program_has_is_told() {
    let mut rig = gateway::Gateway::prepare();
    rig.hsmux("node ca init --ca ca").ok();
    rig.hsmux("node enroll web1 --ca ca --out node").ok();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let free = "127.0.0.1:0";
    let site = format!("[[site]]\n{}\n{}", gateway::BOTH, gateway::FOLDER);
    let files = "certificate = \"node/node.pem\"\nkey = \"node/node.key\"\n\
                 ca = \"node/ca.pem\"\nrevoked = \"node/revoked.pem\"";
    for (key, lines) in [
        (
            "[gateway] listen",
            format!("[gateway]\nlisten = [\"{taken}\"]\n{site}"),
        ),
        (
            "[gateway] http",
            format!("[gateway]\nlisten = [\"{free}\"]\nhttp = [\"{taken}\"]\n{site}"),
        ),
        (
            "[gateway] metrics",
            format!("[gateway]\nlisten = [\"{free}\"]\nmetrics = \"{taken}\"\n{site}"),
        ),
        (
            "[broker] listen",
            format!("[broker]\nlisten = [\"{taken}\"]"),
        ),
        (
            "[node] listen",
            format!("[node]\nlisten = [\"{taken}\"]\n{files}"),
        ),
    ] {
        rig.config.module = lines;
        rig.write_config();
        let found = findings(&rig, &format!("{key} {taken}"));
        let [finding] = &found[..] else {
            panic!("{key}: {found:#?}");
        };
        assert_eq!(finding["level"], "error");
        assert_eq!(finding["problem"], "another program listens there");
        let advice = finding["advice"].as_str().unwrap();
        assert!(
            advice.contains(&format!("sport = :{}", taken.port())),
            "{advice}"
        );
        // The daemon says the same, and refers to the doctor.
        rig.hsmux("serve").fails().says("hsmux doctor");
    }
    drop(other);
    let free = rig.hsmux("doctor --json").finish();
    free.never_says("another program");
}
