//! A new key is on every member or on none: one of them refuses, and nobody has it.

use hsmux_suite::{Rig, SOFTHSM, Setup, StandIn};
use hsmux_token::ck;
use serde_json::json;

use crate::held::{on_token, until_whole};
use crate::rig::Broker;

const MEMBERS: [&str; 2] = ["hsm1", "hsm2"];
const KINDS: [&str; 4] = ["aes256-gcm96", "aes256-cbc", "ecdsa-p256", "hmac"];

/// Refused with these words, and afterwards as if nobody had asked.
fn is_nowhere(broker: &Broker, name: &str, kind: &str, status: u16, words: &[&str]) {
    let path = format!("keys/{name}");
    let (found, json) = broker.ask("POST", &path, &json!({"type": kind}).to_string());
    let said = json["errors"].to_string();
    let says_all = words.iter().all(|words| said.contains(words));
    assert!(found == status && says_all, "{kind}: {found} {said}");
    assert_eq!(broker.ask("GET", &path, "").0, 404, "{name}");
    let (_, listed) = broker.ask("LIST", "keys", "");
    let listed = listed["data"]["keys"].to_string();
    assert!(!listed.contains(name), "{listed}");
}

/// The name is for any type, and the key's versions begin at one.
fn is_free(broker: &Broker, name: &str, kind: &str) {
    let body = json!({"type": kind}).to_string();
    let made = broker.good("POST", &format!("keys/{name}"), &body);
    assert_eq!(
        (&made["latest_version"], &made["type"]),
        (&json!(1), &json!(kind))
    );
}

#[test]
fn what_one_member_refuses_is_on_none_and_its_name_is_free() {
    let mut rig = Rig::empty(Setup::Daemon, MEMBERS.len());
    let mut tokens = MEMBERS.map(|label| {
        let token = StandIn::new(&rig.path(""), &format!("{label}-module"), &[label]);
        (label, token)
    });
    for (_, token) in &mut tokens {
        token.set_module(&format!("forward = \"{SOFTHSM}\""));
    }
    rig.config.members = tokens
        .iter()
        .flat_map(|(_, token)| token.members())
        .collect();
    let broker = Broker::over(rig, "");
    broker.good("POST", "keys/app-before", "");
    let whole = |broker: &Broker| until_whole(broker, &MEMBERS);
    for (label, token) in &mut tokens {
        for (code, name, status) in [
            (ck::CKR_DEVICE_MEMORY, "CKR_DEVICE_MEMORY", 503),
            (
                ck::CKR_TOKEN_WRITE_PROTECTED,
                "CKR_TOKEN_WRITE_PROTECTED",
                400,
            ),
        ] {
            token.set_all(&format!("make_error = {code}"));
            for kind in KINDS {
                let words = [&format!("{label}: C_")[..], name];
                is_nowhere(&broker, &format!("app-{kind}"), kind, status, &words);
            }
            let rotate = "keys/app-before/rotate";
            broker.refused("POST", rotate, "", status, name);
            let shown = broker.good("GET", "keys/app-before", "");
            assert_eq!(shown["latest_version"], 1);
        }
        token.set_all("");
        whole(&broker);
    }
    for (kind, other) in KINDS.iter().zip(KINDS.iter().rev()) {
        is_free(&broker, &format!("app-{kind}"), other);
    }
    whole(&broker);
}

/// Two keys make one of `aes256-cbc`: the first is on both members when nobody can make the second.
#[test]
fn half_a_key_is_on_none() {
    let mut rig = Rig::empty(Setup::Daemon, MEMBERS.len());
    let mut tokens = StandIn::new(&rig.path(""), "old", &MEMBERS);
    tokens.set_module(&format!("forward = \"{SOFTHSM}\""));
    tokens.set_all(&format!("lacks = [{}]", ck::CKM_GENERIC_SECRET_KEY_GEN));
    rig.config.members = tokens.members().collect();
    let broker = Broker::over(rig, "");
    let words = [
        "hsm1: C_GenerateKey",
        "there is no CKM_GENERIC_SECRET_KEY_GEN",
    ];
    is_nowhere(&broker, "app-pair", "aes256-cbc", 400, &words);
    until_whole(&broker, &MEMBERS);
    is_free(&broker, "app-pair", "aes256-gcm96");
    until_whole(&broker, &MEMBERS);
}

/// Such keys may do what the member's defaults allow. Nothing of the first try is left.
#[test]
fn a_member_that_knows_not_all_uses_of_a_template_gets_its_keys() {
    let mut rig = Rig::empty(Setup::Daemon, MEMBERS.len());
    let mut tokens = MEMBERS.map(|label| {
        let mut token = StandIn::new(&rig.path(""), &format!("{label}-module"), &[label]);
        token.set_module(&format!("forward = \"{SOFTHSM}\""));
        token
    });
    rig.config.members = tokens.iter().flat_map(StandIn::members).collect();
    let broker = Broker::over(rig, "");
    for (at, token) in tokens.iter_mut().enumerate() {
        let kinds = [ck::CKA_DERIVE, ck::CKA_WRAP, ck::CKA_UNWRAP];
        token.set_all(&format!("refuses_false = {kinds:?}"));
        for kind in KINDS {
            is_free(&broker, &format!("app-{at}-{kind}"), kind);
        }
        for kind in ["aes:256", "ec:p256", "rsa:2048", "hmac:256"] {
            let label = format!("own-{at}-{}", &kind[..3]);
            let generate = format!("key generate {kind} --label {label}");
            broker.rig.hsmux(&generate).ok();
        }
        until_whole(&broker, &MEMBERS);
        broker.rig.hsmux("status --check").ok();
        let owed = &broker.rig.status()["pool"]["debts"];
        assert_eq!(owed, &json!([]));
        token.set_all("");
    }
}

/// A token to which no key can be brought, before or behind one that could make it.
#[test]
fn a_member_of_another_kind_is_named() {
    for first in [false, true] {
        let mut rig = Rig::empty(Setup::Daemon, 1);
        let _cards = rig.stand_in("cards", &["card"]);
        if first {
            rig.config.members.reverse();
        }
        let broker = Broker::over(rig, "");
        for kind in KINDS {
            let words = ["card: has no unwrapping by CKM_RSA_PKCS_OAEP"];
            is_nowhere(&broker, &format!("app-{kind}"), kind, 400, &words);
        }
        assert_eq!(on_token(&broker, "hsm1"), []);
        // One copy is enough where the configuration says so.
        let mut broker = broker;
        broker.rig.stop();
        broker.rig.config.pool.push_str("\nreplicas = 1");
        broker.start_again();
        is_free(&broker, "app-hmac", "aes256-gcm96");
        assert_eq!(on_token(&broker, "hsm1"), [("app-hmac".to_owned(), 0, 1)]);
    }
}
