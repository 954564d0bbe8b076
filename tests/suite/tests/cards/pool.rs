//! The pool over cards: OpenSC's module, one worker for each card.

use std::fs;

use hsmux_suite::{Caller, CardPool, Cards, PATIENCE, until};
use hsmux_vcard::{Order, Timing};
use serde_json::{Value, json};

const CARDS: usize = 4;
const KEYS: [(&str, &str, &str); 2] = [("EC:prime256v1", "10", "ec"), ("rsa:2048", "11", "rsa")];

fn pool() -> CardPool {
    let mut pool = CardPool::prepare(CARDS, &Timing::None, &KEYS);
    pool.start();
    pool
}

/// How much each member has done so far.
fn done(pool: &CardPool) -> Vec<u64> {
    let status = pool.rig.status();
    let members = status["members"].as_array().unwrap();
    members
        .iter()
        .map(|member| member["served"].as_u64().unwrap())
        .collect()
}

fn progress(program: &mut Caller) -> u64 {
    let progress = program.ok("progress", json!({}));
    assert_eq!(progress["failed"], json!({}), "{progress}");
    progress["signed"].as_u64().unwrap()
}

/// Ends the daemon, and sees that every card still has all tries of its PIN.
fn no_try_is_gone(mut pool: CardPool) {
    pool.rig.stop();
    let listed: Value = serde_json::from_str(&pool.card("list --json").out).unwrap();
    let cards = listed["cards"].as_array().unwrap();
    assert_eq!(cards.len(), CARDS);
    for card in cards {
        assert_eq!(card["pin"], "3 tries left", "{card}");
    }
}

#[test]
fn every_card_serves_every_key() {
    let pool = pool();
    fs::write(pool.rig.path("data"), "what is signed").unwrap();
    for (id, key, mechanism) in [
        ("10", "ec", "ECDSA-SHA256 --signature-format openssl"),
        ("11", "rsa", "SHA256-RSA-PKCS"),
    ] {
        let public = pool.cards.path(key).with_extension("pub");
        pool.rig
            .pkcs11_tool(&format!("--sign --id {id} -m {mechanism}"))
            .args("-i data -o signature")
            .ok();
        pool.rig
            .run("openssl")
            .args("dgst -sha256 -signature signature -verify")
            .arg(public)
            .arg("data")
            .ok()
            .says("Verified OK");
    }
    let before = done(&pool);
    let mut program = Caller::open(&pool.rig);
    program.ok("start_load", json!({"threads": 2 * CARDS}));
    until("every card serves", PATIENCE, || {
        let after = done(&pool);
        let grown = before.iter().zip(&after).all(|(a, b)| a + 3 < *b);
        grown.then_some(())
    });
    progress(&mut program);
    program.ok("stop_load", json!({}));
    no_try_is_gone(pool);
}

/// Nothing is lost: the others do what it was doing.
#[test]
fn a_pulled_card_leaves_and_returns_under_load() {
    let pool = pool();
    let mut program = Caller::open(&pool.rig);
    program.ok("start_load", json!({"threads": 2 * CARDS}));
    for card in [1, 3] {
        pool.cards.readers.obey(card, Order::Unplug);
        pool.rig.wait_for_members(CARDS - 1);
        let serving = pool.rig.members_in("serving");
        assert!(!serving.contains(&Cards::serial(card)), "{serving:?}");
        let then = progress(&mut program);
        until("the others go on", PATIENCE, || {
            (progress(&mut program) > then + 20).then_some(())
        });

        pool.cards.readers.obey(card, Order::Plug);
        pool.rig.wait_for_members(CARDS);
        let before = done(&pool)[card];
        until("it serves again", PATIENCE, || {
            (done(&pool)[card] > before + 3).then_some(())
        });
    }
    let load = program.ok("stop_load", json!({}));
    assert_eq!(load["failed"], json!({}), "{load}");
    no_try_is_gone(pool);
}
