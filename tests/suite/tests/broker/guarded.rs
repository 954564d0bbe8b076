//! Keys of the broker past the broker: a program sees those that its listener names, and breaks no promise of the broker
//! with them.

use hsmux_suite::{Rig, Run, Setup, source};
use serde_json::json;

use crate::held::{ids_on_token, on_token};
use crate::rig::Broker;

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;
const NOT_PERMITTED: &str = "0x68";

/// Listeners that have no `keys`, some that name none of the broker's, and all that are named.
const LISTENERS: &str = r#"
[[listener]]
socket = "wild.sock"
login = "peer"
keys = ["pkcs11:type=secret-key", "pkcs11:type=private", "pkcs11:object=aes"]

[[listener]]
socket = "named.sock"
login = "peer"
keys = [
    "pkcs11:object=app-gcm", "pkcs11:object=app-cbc", "pkcs11:object=app-mac",
    "pkcs11:object=app-ec", "pkcs11:object=app-rsa", "pkcs11:object=app-forged",
]
"#;

const KEYS: [(&str, &str); 5] = [
    ("app-gcm", "aes256-gcm96"),
    ("app-cbc", "aes256-cbc"),
    ("app-mac", "hmac"),
    ("app-ec", "ecdsa-p256"),
    ("app-rsa", "rsa-2048"),
];

fn broker() -> Broker {
    let broker = Broker::over(Rig::prepare(Setup::Daemon, 1), LISTENERS);
    for (name, kind) in KEYS {
        let body = json!({"type": kind}).to_string();
        broker.good("POST", &format!("keys/{name}"), &body);
    }
    broker
}

/// What the program says on one of the listeners.
fn program(broker: &Broker, socket: Option<&str>, more: &[&str]) -> String {
    let run = broker.rig.run("/usr/bin/python3");
    let run = match socket {
        Some(socket) => run.env("HSMUX_SOCKET", broker.rig.path(socket)),
        None => run,
    };
    let run = run
        .arg(source().join("tests/suite/programs/broker_keys.py"))
        .arg(broker.rig.module())
        .arg(broker.rig.label())
        .arg(broker.rig.pin());
    more.iter().fold(run, Run::arg).ok().out
}

/// What became of an attempt.
fn fate<'a>(said: &'a str, attempt: &str) -> &'a str {
    let wanted = format!("{attempt}: ");
    let line = said.lines().find_map(|line| line.strip_prefix(&*wanted));
    line.unwrap_or_else(|| panic!("no {attempt} in {said}"))
}

#[test]
fn a_program_sees_no_key_of_the_broker_that_its_listener_does_not_name() {
    let broker = broker();
    let before = on_token(&broker, "hsm1");
    for socket in [None, Some("wild.sock")] {
        let said = program(&broker, socket, &[]);
        assert_eq!(fate(&said, "seen"), "", "{socket:?}");
        for forged in ["create", "generate", "rename"] {
            let fate = fate(&said, &format!("forged {forged}"));
            assert_eq!(fate, NOT_PERMITTED, "{forged}");
        }
    }
    let listed = broker.rig.pkcs11_tool("--list-objects").ok().out;
    assert!(
        listed.contains("ec") && !listed.contains("app-"),
        "{listed}"
    );
    assert_eq!(on_token(&broker, "hsm1"), before);
    broker.good("POST", "encrypt/app-gcm", TEXT);
}

#[test]
fn a_program_whose_listener_names_keys_of_the_broker_breaks_no_promise_with_them() {
    let broker = broker();
    let before = ids_on_token(&broker, "hsm1");
    let said = program(&broker, Some("named.sock"), &[]);
    assert_eq!(
        fate(&said, "seen"),
        "app-cbc app-ec app-gcm app-mac app-rsa"
    );
    // Those that sign, sign; each is tried with what keys of its type do.
    let signs = ["app-ec ecdsa", "app-rsa pkcs", "app-mac hmac"];
    for attempt in signs {
        assert_eq!(fate(&said, attempt), "done", "{attempt}");
    }
    for line in said.lines().filter(|line| !line.starts_with("seen")) {
        let (attempt, fate) = line.rsplit_once(": ").expect("a fate");
        assert!(fate != "done" || signs.contains(&attempt), "{line}");
    }
    for attempt in [
        "app-gcm gcm",
        "app-gcm short-tag",
        "app-gcm ecb",
        "app-gcm unecb",
        "app-gcm ctr",
        "app-gcm cmac",
        "app-cbc ecb",
        "app-cbc ctr",
        "app-rsa raw",
        "app-rsa unpad",
        "app-rsa copy-raw",
        "app-rsa copy-unpad",
        "app-gcm session-copy",
        "app-gcm 4 copy",
        "app-gcm 4 rename",
        "app-gcm 4 change",
        "app-gcm 4 destroy",
        "app-ec 3 destroy",
        "app-ec 2 destroy",
        "app-rsa 3 copy",
        "forged create",
        "forged generate",
        "forged rename",
    ] {
        // A key of two halves has two lines of one name; the half of another type refuses by its type.
        let refused = format!("{attempt}: {NOT_PERMITTED}");
        assert!(
            said.lines().any(|line| line == refused),
            "{attempt}: {said}"
        );
    }
    assert_eq!(ids_on_token(&broker, "hsm1"), before);
    broker.good("POST", "encrypt/app-gcm", TEXT);
}

/// Connections that are used again and again are handed over to workers, which look at nothing but the key.
#[test]
fn a_named_key_opens_what_the_broker_has_sealed_and_is_never_handed_over() {
    let broker = broker();
    let sealed = broker.good("POST", "encrypt/app-gcm", TEXT);
    let sealed = sealed["ciphertext"].as_str().expect("a text");
    let said = program(&broker, Some("named.sock"), &["open", sealed]);
    assert!(said.contains("opened"), "{said}");
    for attempt in ["again gcm", "again ecb"] {
        assert_eq!(fate(&said, attempt), NOT_PERMITTED, "{attempt}");
    }
}

#[test]
fn an_administrator_deletes_a_key_of_the_broker_only_where_that_is_said() {
    let broker = broker();
    let delete = "key delete --label app-gcm --confirm app-gcm";
    let refused = broker.rig.hsmux(delete).fails();
    refused.says("--broker-keys").says("keys/app-gcm");
    broker.good("POST", "encrypt/app-gcm", TEXT);
    broker.rig.hsmux(&format!("{delete} --broker-keys")).ok();
    assert!(
        !ids_on_token(&broker, "hsm1")
            .iter()
            .any(|(name, _)| name == "app-gcm")
    );
}

/// A program that embeds the pool meets no listener; the broker's keys are hidden from it all the same.
#[test]
fn a_pool_that_a_program_embeds_hides_them_as_well() {
    let mut broker = broker();
    broker.rig.stop();
    let config = std::fs::read_to_string(broker.rig.path("hsmux.toml")).expect("the file");
    let embedded = config.replace("mode = \"daemon\"", "mode = \"embedded\"");
    std::fs::write(broker.rig.path("embedded.toml"), embedded).expect("write");
    let said = broker
        .rig
        .run("/usr/bin/python3")
        .env("HSMUX_CONFIG", broker.rig.path("embedded.toml"))
        .arg(source().join("tests/suite/programs/broker_keys.py"))
        .arg(broker.rig.module())
        .arg(broker.rig.label())
        .arg(broker.rig.pin())
        .ok()
        .out;
    assert_eq!(fate(&said, "seen"), "");
    assert_eq!(fate(&said, "forged create"), NOT_PERMITTED);
}
