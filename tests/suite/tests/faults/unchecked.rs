//! Keys of a type that hsmux cannot compute with: programs use them on the one member that has them, and everybody is
//! told that they are unproved.

use hsmux_suite::{Caller, Rig, Setup, StandIn};
use hsmux_token::ck::*;
use serde_json::{Value, json};

/// Two members, of which the second has a pair of ML-DSA beside the usual keys.
fn pool(setup: Setup, keys: &str) -> (Rig, StandIn) {
    let mut rig = Rig::prepare(setup, 0);
    rig.config.pool.push_str("\npolicy = \"round-robin\"");
    let mut cards = rig.stand_in("cards", &["card1", "card2"]);
    cards.set("card2", &format!("keys = [{keys}]"));
    rig.write_config();
    if setup == Setup::Daemon {
        rig.start();
        rig.wait_for_members(2);
    }
    (rig, cards)
}

const WITH_ML_DSA: &str = r#""rsa", "ec", "aes", "ml-dsa""#;

fn programs_sign_and_verify(setup: Setup) {
    let (rig, _cards) = pool(setup, WITH_ML_DSA);
    let mut program = Caller::open(&rig);
    let mut verify = |damaged| {
        let asked = json!({"mechanism": CKM_ML_DSA, "label": "ml-dsa", "damaged": damaged});
        program.ask("verify", asked)
    };
    // Each time where the key is, though the other member has its turn.
    for _ in 0..3 {
        assert_eq!(verify(false), Ok(json!(3309)));
        assert_eq!(verify(true), Err(CKR_SIGNATURE_INVALID));
    }
}

#[test]
fn programs_sign_and_verify_through_the_daemon() {
    programs_sign_and_verify(Setup::Daemon);
}

#[test]
fn programs_sign_and_verify_with_the_pool_embedded() {
    programs_sign_and_verify(Setup::Embedded);
}

#[test]
fn a_parameter_that_hsmux_does_not_know_is_refused() {
    let (rig, _cards) = pool(Setup::Daemon, WITH_ML_DSA);
    let mut program = Caller::open(&rig);
    let asked = json!({
        "verb": "Sign", "mechanism": CKM_ML_DSA, "label": "ml-dsa", "parameter": "0011223344556677",
    });
    assert_eq!(
        program.ask("keyed", asked),
        Err(CKR_MECHANISM_PARAM_INVALID)
    );
    rig.wait_for_members(2);
}

#[test]
fn they_are_marked_and_the_pool_is_well() {
    let (rig, _cards) = pool(Setup::Daemon, WITH_ML_DSA);
    rig.hsmux("status --check").ok();
    let list = rig.hsmux("key list").ok();
    let why = "hsmux cannot check keys of type ML-DSA; it is used on member card2 alone";
    list.says("ML-DSA").says("unproved");
    rig.hsmux("doctor")
        .ok()
        .says(why.split("; ").next().unwrap());
    let rows = rig.hsmux("key list --json").ok().out;
    let rows: Value = serde_json::from_str(&rows).unwrap();
    let rows = rows.as_array().unwrap().iter();
    let row = rows
        .filter(|row| row["label"] == "ml-dsa" && row["class"] == "private key")
        .collect::<Vec<_>>();
    assert_eq!(row.len(), 1, "{row:?}");
    assert_eq!(row[0]["missing"], json!([]));
    let replica = &row[0]["replicas"][0];
    assert_eq!(
        (&replica["state"], &replica["serves"], &replica["reason"]),
        (&json!("unproved"), &json!(true), &json!(why))
    );
}

/// Nobody could say which of the two has signed.
#[test]
fn a_key_that_looks_as_another_on_its_token_does_not_serve() {
    let twins = format!("{WITH_ML_DSA}, \"ml-dsa-twin\"");
    let (rig, _cards) = pool(Setup::Daemon, &twins);
    let mut program = Caller::open(&rig);
    let asked = json!({"mechanism": CKM_ML_DSA, "label": "ml-dsa"});
    program.ask("verify", asked).unwrap_err();
    let found = program.ok("objects", json!({"kind": "private"}));
    assert_eq!(found, json!(["rsa", "ec"]));
    rig.hsmux("doctor")
        .fails()
        .says("another private key of this token has the same type, parameters, CKA_ID and label");
}
