//! Mechanisms that a vendor has defined: programs sign with them, and nobody does anything else.

use hsmux_suite::{Caller, Rig, Setup, StandIn};
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, Error, Kind, Mechanism, ObjectId, Operation, Params, Verb};
use hsmux_wire::{Client, VERSION};
use serde_json::{Value, json};

use crate::raw::{client, log_in, named, soon};

/// The stand-in's: it does as CKM_ECDSA_SHA256, and says that it wraps, derives and makes keys, too.
const VENDORS: u64 = CKM_VENDOR_DEFINED + 0x11;

fn pool(setup: Setup) -> (Rig, StandIn) {
    let mut rig = Rig::prepare(setup, 0);
    rig.config.pool.push_str("\npolicy = \"round-robin\"");
    let cards = rig.stand_in("cards", &["card1", "card2"]);
    rig.write_config();
    if setup == Setup::Daemon {
        rig.start();
        rig.wait_for_members(2);
    }
    (rig, cards)
}

fn threads_sign(setup: Setup) {
    let (rig, _cards) = pool(setup);
    let mut program = Caller::open(&rig);
    let once = json!({"threads": 8, "once": true, "mechanism": VENDORS});
    program.ok("start_load", once);
    let load = program.ok("stop_load", json!({}));
    assert_eq!(
        (&load["signed"], &load["failed"]),
        (&json!(8), &json!({})),
        "{load}"
    );
}

#[test]
fn threads_sign_through_the_daemon() {
    threads_sign(Setup::Daemon);
}

#[test]
fn threads_sign_with_the_pool_embedded() {
    threads_sign(Setup::Embedded);
}

fn keyed(verb: &str, mechanism: u64, more: &Value) -> Value {
    let mut request = json!({"verb": verb, "mechanism": mechanism});
    let more = more.as_object().unwrap().clone();
    request.as_object_mut().unwrap().extend(more);
    request
}

#[test]
fn an_unknown_one_and_one_with_a_parameter_are_refused() {
    let (rig, _cards) = pool(Setup::Daemon);
    rig.pkcs11_tool("--list-mechanisms")
        .ok()
        .says("mechtype-0x80000011");
    let mut program = Caller::open(&rig);
    let mut rv = |verb, mechanism, more: Value| program.ask("keyed", keyed(verb, mechanism, &more));
    let signed = rv("Sign", VENDORS, json!({})).unwrap();
    assert_eq!(signed.as_str().unwrap().len(), 128);
    assert_eq!(
        rv("Sign", VENDORS + 1, json!({})),
        Err(CKR_MECHANISM_INVALID)
    );
    // It may be the address of something.
    let parameter = json!({"parameter": "0011223344556677"});
    assert_eq!(
        rv("Sign", VENDORS, parameter),
        Err(CKR_MECHANISM_PARAM_INVALID)
    );
    assert_eq!(
        rv("Decrypt", VENDORS, json!({})),
        Err(CKR_MECHANISM_INVALID)
    );
    let secret = json!({"kind": "secret", "label": "aes"});
    assert_eq!(rv("Sign", VENDORS, secret), Err(CKR_KEY_TYPE_INCONSISTENT));
}

/// A member without it would make it a matter of luck.
#[test]
fn all_members_with_the_key_have_it_or_it_is_not_offered() {
    let (rig, mut cards) = pool(Setup::Daemon);
    let mut program = Caller::open(&rig);
    program.ok("keyed", keyed("Sign", VENDORS, &json!({})));
    drop(program);
    cards.set("card2", &format!("lacks = [{VENDORS}]"));
    rig.hsmux("token park card2 --force").ok();
    rig.hsmux("token resume card2").ok();
    rig.wait_for_members(2);
    let mut program = Caller::open(&rig);
    for _ in 0..4 {
        let signed = program.ask("keyed", keyed("Sign", VENDORS, &json!({})));
        assert_eq!(signed, Err(CKR_MECHANISM_INVALID));
    }
    program.ok("sign", json!({}));
}

fn execute(client: &Client, operation: &Operation) -> Error {
    let answer = client.execute(operation, soon());
    answer.expect_err("it is refused")
}

fn refused(client: &Client, operation: &Operation) {
    let error = execute(client, operation);
    let kind = error.kind();
    let invalid = matches!(
        kind,
        Kind::NoMechanism | Kind::Vendor(CKR_MECHANISM_INVALID)
    );
    assert!(invalid, "{error}");
}

/// Without the module before it.
#[test]
fn no_client_manages_keys_with_it_or_hands_addresses_to_the_vendor() {
    let (rig, _cards) = pool(Setup::Daemon);
    let client = client(&rig, VERSION..=VERSION);
    log_in(&rig, &client);
    let key = named(&client, Class::PRIVATE_KEY, "ec").unwrap();
    let vendors = || Mechanism::plain(VENDORS);
    let template = Attributes::default;
    let used = |verb, key: ObjectId, mechanism| Operation::Use {
        verb,
        key: key.into(),
        mechanism,
        data: vec![7; 32].into(),
    };
    let sign = used(Verb::Sign, key, vendors());
    client.execute(&sign, soon()).unwrap();
    refused(&client, &used(Verb::Decrypt, key, vendors()));
    refused(&client, &used(Verb::Encrypt, key, vendors()));
    refused(
        &client,
        &Operation::Derive {
            mechanism: vendors(),
            key: key.into(),
            template: template(),
        },
    );
    refused(
        &client,
        &Operation::Generate {
            mechanism: vendors(),
            template: template(),
        },
    );
    refused(
        &client,
        &Operation::Wrap {
            wrapping: key.into(),
            mechanism: vendors(),
            key: key.into(),
        },
    );
    let address = Mechanism {
        kind: VENDORS,
        params: Params::Bytes(vec![0x41; 8].into()),
    };
    let error = execute(&client, &used(Verb::Sign, key, address));
    assert_eq!(error.code(), Some(CKR_MECHANISM_PARAM_INVALID), "{error}");
    // No worker has ended.
    rig.wait_for_members(2);
    client.execute(&sign, soon()).unwrap();
}
