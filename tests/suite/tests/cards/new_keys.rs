//! New keys through a pool of cards: on every card by its DKEK, or on none.

use std::fs;

use hsmux_suite::{Caller, CardPool, Cards, PATIENCE, Process, until};
use hsmux_vcard::{Fault, Order, Timing};
use serde_json::{Value, json};

const EC: (&str, &str, &str) = ("EC:prime256v1", "10", "ec");
const RSA: (&str, &str, &str) = ("rsa:2048", "11", "rsa");

/// The instruction bytes of what a new key takes.
const GENERATE: u8 = 0x46;
const WRAP: u8 = 0x72;
const UNWRAP: u8 = 0x74;

/// Cards with one DKEK and no keys, whose daemon is not started yet.
fn empty(count: usize) -> CardPool {
    CardPool::prepare(count, &Timing::None, &[])
}

fn started(count: usize) -> CardPool {
    let mut pool = empty(count);
    pool.start();
    pool
}

/// Through hsmux's module, the way an application does.
fn keypairgen(pool: &CardPool, (kind, id, label): (&str, &str, &str)) -> hsmux_suite::Run {
    let line = format!("--keypairgen --key-type {kind} --id {id} --label {label}");
    pool.rig.pkcs11_tool(&line).limit(120)
}

/// The keys on each card, by CKA_ID and label; half a key has neither.
fn held(pool: &CardPool) -> Vec<Vec<(String, String)>> {
    let listed: Value = serde_json::from_str(&pool.card("list --json").out).unwrap();
    let text = |key: &Value, field: &str| key[field].as_str().unwrap().to_owned();
    let keys = |card: &Value| {
        let keys = card["keys"].as_array().unwrap().iter();
        let mut keys: Vec<_> = keys
            .map(|key| (text(key, "id"), text(key, "label")))
            .collect();
        keys.sort();
        keys
    };
    listed["cards"]
        .as_array()
        .unwrap()
        .iter()
        .map(keys)
        .collect()
}

fn key(id: &str, label: &str) -> (String, String) {
    (id.to_owned(), label.to_owned())
}

/// The pool signs, and the signature is good.
fn signs(pool: &CardPool, (kind, id, _): (&str, &str, &str)) {
    let mechanism = match kind {
        "rsa:2048" => "SHA256-RSA-PKCS",
        _ => "ECDSA-SHA256 --signature-format openssl",
    };
    fs::write(pool.rig.path("data"), "what is signed").unwrap();
    pool.rig.public_key(&format!("id=%{id}"), "public.pem");
    pool.rig
        .pkcs11_tool(&format!("--sign --id {id} -m {mechanism}"))
        .args("-i data -o signature")
        .ok();
    pool.rig
        .run("openssl")
        .args("dgst -sha256 -verify public.pem -signature signature data")
        .ok()
        .says("Verified OK");
}

/// Ends the daemon, and sees that every card still has all tries of its PIN.
fn no_try_is_gone(mut pool: CardPool) {
    pool.rig.stop();
    let listed: Value = serde_json::from_str(&pool.card("list --json").out).unwrap();
    for card in listed["cards"].as_array().unwrap() {
        assert_eq!(card["pin"], "3 tries left", "{card}");
    }
}

#[test]
fn a_new_key_is_on_every_card_and_each_signs() {
    let pool = started(3);
    keypairgen(&pool, EC).ok();
    keypairgen(&pool, RSA).ok();
    pool.rig
        .hsmux("key generate ec:p384 --label third --id 12")
        .ok();
    let all = vec![key("10", "ec"), key("11", "rsa"), key("12", "third")];
    assert_eq!(held(&pool), [all.clone(), all.clone(), all]);
    pool.rig.wait_for_members(3);
    for alone in [2, 0] {
        let order = |order| {
            for card in (0..3).filter(|card| *card != alone) {
                pool.cards.readers.obey(card, order);
            }
        };
        order(Order::Unplug);
        pool.rig.wait_for_members(1);
        signs(&pool, EC);
        signs(&pool, RSA);
        order(Order::Plug);
        pool.rig.wait_for_members(3);
    }
    no_try_is_gone(pool);
}

/// It says which card, and what to do, before anything is made.
#[test]
fn a_card_with_another_dkek_or_none_is_named() {
    let mut pool = empty(3);
    for (options, says) in [
        ("--dkek-shares 0", "has the DKEK with key check value"),
        ("--dkek-shares 1", "1 DKEK shares are missing"),
        ("", "was initialised without a DKEK"),
    ] {
        let serial = Cards::serial(1);
        pool.card(&format!(
            "init --card {serial} --label other {options} \
             --so-pin file:so.pin --pin file:user.pin --yes"
        ));
        pool.start();
        keypairgen(&pool, EC).fails();
        pool.rig
            .hsmux("key generate rsa:2048 --label web")
            .fails()
            .says(&serial)
            .says(says);
        assert_eq!(held(&pool), vec![vec![]; 3]);
        pool.rig.stop();
    }
}

/// Whichever card refuses its part, none keeps the key; the next attempt goes through.
#[test]
fn what_one_card_refuses_is_on_none() {
    let pool = started(2);
    for (card, instruction) in [(0, GENERATE), (0, WRAP), (1, UNWRAP)] {
        let refused = Order::Fault(Fault::Status(0x6F00).always());
        pool.cards
            .readers
            .obey(card, refused.only(None, Some(instruction)));
        keypairgen(&pool, EC).fails();
        pool.cards.readers.obey(card, Order::Clear);
        pool.rig.wait_for_members(2);
        assert_eq!(held(&pool), vec![vec![]; 2], "{instruction:02X}");
    }
    keypairgen(&pool, EC).ok();
    assert_eq!(held(&pool), vec![vec![key("10", "ec")]; 2]);
    signs(&pool, EC);
    no_try_is_gone(pool);
}

#[test]
fn a_card_that_was_away_catches_up() {
    let pool = started(3);
    pool.cards.readers.obey(1, Order::Unplug);
    pool.rig.wait_for_members(2);
    keypairgen(&pool, EC).ok();
    pool.cards.readers.obey(1, Order::Plug);
    pool.rig.wait_for_members(3);
    assert_eq!(held(&pool), vec![vec![key("10", "ec")]; 3]);
    for card in [0, 2] {
        pool.cards.readers.obey(card, Order::Unplug);
    }
    pool.rig.wait_for_members(1);
    signs(&pool, EC);
}

/// Whenever the daemon is killed: the key is on every card afterwards, or on none.
#[test]
fn a_daemon_that_is_killed_in_the_middle_leaves_no_half_key() {
    let mut pool = started(2);
    let journal = pool.rig.path("state/replicate/journal.jsonl");
    let intents = || {
        let lines = fs::read_to_string(&journal).unwrap_or_default();
        lines.matches(r#""record":"intent""#).count()
    };
    // The journal is written before the key is made, and again before it is copied.
    let points = [(0, GENERATE, 1), (0, WRAP, 1), (1, UNWRAP, 2)];
    for (number, (card, instruction, written)) in points.into_iter().enumerate() {
        let before = intents();
        let slow = Order::Fault(Fault::Slow(2000).once());
        pool.cards
            .readers
            .obey(card, slow.only(None, Some(instruction)));
        let line = format!("key generate ec:p256 --label new --id 2{number}");
        let run = pool.rig.hsmux(&line);
        let mut generate = Process::start("generate", &pool.rig.path("."), run);
        until("it is begun", PATIENCE, || {
            (intents() >= before + written).then_some(())
        });
        pool.rig.kill_to_the_last();
        generate.wait();
        pool.start();
        let held = held(&pool);
        assert_eq!(held[0], held[1], "{instruction:02X}");
        assert!(held[0].iter().all(|(_, label)| label == "new"), "{held:?}");
    }
    keypairgen(&pool, EC).ok();
    let held = held(&pool);
    assert_eq!(held[0], held[1]);
    assert!(held[0].contains(&key("10", "ec")), "{held:?}");
}

/// A look at a card logs its worker out, which is connected anew then.
#[test]
fn other_programs_may_have_looked_at_the_cards() {
    let pool = started(2);
    (0..2).for_each(|card| drop(pool.cards.status(card)));
    keypairgen(&pool, EC).ok();
    assert_eq!(held(&pool), vec![vec![key("10", "ec")]; 2]);
    no_try_is_gone(pool);
}

#[test]
fn signatures_go_on_meanwhile() {
    let mut pool = CardPool::prepare(3, &Timing::None, &[EC]);
    pool.start();
    let mut program = Caller::open(&pool.rig);
    program.ok("start_load", json!({"threads": 4}));
    keypairgen(&pool, RSA).ok();
    let both = vec![key("10", "ec"), key("11", "rsa")];
    assert_eq!(held(&pool), vec![both; 3]);
    let load = program.ok("stop_load", json!({}));
    assert_eq!(load["failed"], json!({}), "{load}");
    no_try_is_gone(pool);
}

/// After `hsmux key generate` every replica of the key serves.
#[test]
fn the_command_returns_when_all_replicas_serve() {
    let pool = started(3);
    let made = pool.rig.hsmux("key generate ec:p256 --label web --json");
    let rows: Value = serde_json::from_str(&made.limit(120).ok().out).unwrap();
    let private = rows.as_array().unwrap().iter();
    let private = { private }.find(|row| row["class"] == "private key");
    let replicas = private.unwrap()["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 3, "{rows:#}");
    assert!(
        replicas.iter().all(|replica| replica["state"] == "serving"),
        "{rows:#}"
    );
    no_try_is_gone(pool);
}

/// `sc-hsm-tool` selects the application of a card, which logs out every program.
fn log_out(pool: &CardPool) {
    for card in 0..2 {
        pool.cards.sc_hsm_tool(card, "").ok();
    }
}

#[test]
fn a_change_is_made_though_another_program_has_logged_the_cards_out() {
    let pool = started(2);
    let hsmux = |line: &str| pool.rig.hsmux(line).limit(120);
    hsmux("key generate ec:p256 --label web").ok();
    hsmux("key csr --label web --type private --subject CN=web --out web.csr").ok();
    pool.rig.certify("web.csr", "web.crt");
    log_out(&pool);
    hsmux("key cert import web.crt").ok();
    log_out(&pool);
    hsmux("key delete --label web --type cert --yes").ok();
    log_out(&pool);
    hsmux("key generate ec:p256 --label more --id 20").ok();
    let both = |held: &[(String, String)]| held.contains(&key("20", "more"));
    log_out(&pool);
    assert!(held(&pool).iter().all(|card| both(card)));
    pool.rig.wait_for_members(2);
    no_try_is_gone(pool);
}

/// `key clone` writes beside the pool's changes.
#[test]
fn a_certificate_is_cloned_though_another_program_has_logged_the_cards_out() {
    let mut pool = CardPool::prepare(2, &Timing::None, &[EC]);
    pool.rig
        .run("openssl")
        .args("req -x509 -newkey rsa:2048 -nodes -keyout lone.key -subj /CN=lone")
        .args("-outform DER -out lone.der")
        .ok();
    let lone = pool.rig.path("lone.der");
    let write = format!("--write-object {} --type cert", lone.display());
    pool.cards
        .pkcs11_tool(0, &write)
        .args("--id 10 --label lone")
        .ok();
    pool.start();
    log_out(&pool);
    let clone = format!(
        "key clone --label lone --type cert --to {}",
        Cards::serial(1)
    );
    pool.rig.hsmux(&clone).limit(120).ok().says("copied");
    pool.rig.wait_for_members(2);
    pool.cards
        .pkcs11_tool(1, "--list-objects --type cert")
        .ok()
        .says("lone");
    no_try_is_gone(pool);
}
