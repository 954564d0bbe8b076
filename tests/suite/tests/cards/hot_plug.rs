//! Cards that come and go while nobody asks anything of them.

use hsmux_suite::{CardPool, Cards, PATIENCE, until};
use hsmux_vcard::{Order, Timing};
use serde_json::Value;

const KEY: [(&str, &str, &str); 1] = [("EC:prime256v1", "10", "ec")];

/// The seat of a card, as the pool has it.
fn seat(pool: &CardPool, card: usize) -> Value {
    let status = pool.rig.status();
    let seats = status["pool"]["seats"].as_array().unwrap();
    let of_card = |seat: &&Value| seat["member"] == Cards::serial(card);
    seats.iter().find(of_card).unwrap().clone()
}

/// The other cards are asleep, so that it is this one.
fn every_card_signs(pool: &CardPool) {
    let serving = pool.rig.members_in("serving");
    for member in &serving {
        for other in serving.iter().filter(|other| *other != member) {
            pool.rig.hsmux(&format!("token park {other} --force")).ok();
        }
        pool.rig
            .hsmux("bench sign --key pkcs11:object=ec --count 3")
            .ok();
        for other in serving.iter().filter(|other| *other != member) {
            pool.rig.hsmux(&format!("token resume {other}")).ok();
        }
    }
}

#[test]
fn an_idle_pool_sees_a_card_go_and_come() {
    let mut pool = CardPool::prepare(2, &Timing::None, &KEY);
    pool.start();
    assert_eq!(seat(&pool, 1)["token"]["slot"], pool.cards.readers.name(1));
    for card in [1, 0] {
        pool.cards.readers.obey(card, Order::Unplug);
        pool.rig.wait_for_members(1);
        assert_eq!(pool.rig.members_in("serving"), [Cards::serial(1 - card)]);
        // Who it was is known all the same.
        assert_eq!(seat(&pool, card)["token"]["serial"], Cards::serial(card));

        // It is asked for again, in vain: ever more rarely, until it comes.
        until("three attempts", PATIENCE, || {
            (seat(&pool, card)["attempts"].as_u64() >= Some(3)).then_some(())
        });
        pool.cards.readers.obey(card, Order::Plug);
        pool.rig.wait_for_members(2);
    }
    // Nothing was ever asked for but the proofs.
    assert_eq!(seat(&pool, 0)["served"], 0);
    every_card_signs(&pool);
}

/// A card that was away when the daemon started.
#[test]
fn a_card_that_was_never_seen_comes() {
    let mut pool = CardPool::prepare(2, &Timing::None, &KEY);
    pool.cards.readers.obey(1, Order::Unplug);
    pool.start_daemon();
    pool.rig.wait_for_members(1);
    until("three attempts", PATIENCE, || {
        (seat(&pool, 1)["attempts"].as_u64() >= Some(3)).then_some(())
    });
    pool.cards.readers.obey(1, Order::Plug);
    pool.rig.wait_for_members(2);
    every_card_signs(&pool);
}

/// Without pcscd no card is there, and with it all are: at the start, after its end, after its crash.
#[test]
fn pcscd_comes_and_goes() {
    let mut pool = CardPool::prepare(2, &Timing::None, &KEY);
    pool.cards.readers.stop_pcscd();
    pool.start_daemon();
    until("both were tried", PATIENCE, || {
        let tried = |card| seat(&pool, card)["attempts"].as_u64() >= Some(1);
        (tried(0) && tried(1)).then_some(())
    });
    assert!(pool.rig.members_in("serving").is_empty());
    pool.cards.readers.start_pcscd().unwrap();
    pool.rig.wait_for_members(2);

    pool.cards.readers.stop_pcscd();
    pool.rig.wait_for_members(0);
    pool.cards.readers.start_pcscd().unwrap();
    pool.rig.wait_for_members(2);

    pool.cards.readers.kill_pcscd();
    pool.rig.wait_for_members(0);
    pool.cards.readers.start_pcscd().unwrap();
    pool.rig.wait_for_members(2);
    every_card_signs(&pool);
}
