//! New cards for a pool that works.

use hsmux_suite::{Caller, CardPool, Cards, PATIENCE, until};
use hsmux_vcard::{Order, Timing};
use serde_json::json;

const KEY: [(&str, &str, &str); 1] = [("EC:prime256v1", "10", "ec")];
const MEMBERS: usize = 2;

/// Blank from its box to a replica of the first card, which goes on serving.
fn make_replica(pool: &CardPool, new: usize) {
    pool.cards.readers.obey(new, Order::Plug);
    pool.cards.readers.wait().unwrap();
    let (first, serial) = (Cards::serial(0), Cards::serial(new));
    pool.card_beside(&format!("init --card {serial} --label card{new}"))
        .args("--dkek-shares 1 --so-pin file:so.pin --pin file:user.pin --yes")
        .ok();
    pool.card_beside(&format!("dkek import-share share.pbe --card {serial}"))
        .args("--password file:password")
        .ok();
    pool.card_beside(&format!("clone --from {first} --to {serial}"))
        .args("--pin file:user.pin")
        .ok();
}

/// Waits until a member has answered a few requests of callers.
fn wait_until_it_works(pool: &CardPool, card: usize) {
    let serial = Cards::serial(card);
    until("the new card works", PATIENCE, || {
        let status = pool.rig.status();
        let mut members = status["members"].as_array()?.iter();
        let member = members.find(|member| member["name"] == serial.as_str())?;
        (member["served"].as_u64()? > 3).then_some(())
    });
}

/// Once by `hsmux token add`, once by a reload: each serves after its proof, and no signature is lost.
#[test]
fn new_cards_join_under_load() {
    let mut pool = CardPool::with_spare(MEMBERS, 2, &Timing::None, &KEY);
    pool.start();
    let mut program = Caller::open(&pool.rig);
    program.ok("start_load", json!({"threads": 3}));

    make_replica(&pool, 2);
    pool.add_member(2, 3);
    pool.rig.write_config();
    let added = format!("token add {}", Cards::serial(2));
    pool.rig.hsmux(&added).ok();
    pool.rig.wait_for_members(3);
    wait_until_it_works(&pool, 2);

    make_replica(&pool, 3);
    pool.add_member(3, 4);
    pool.rig.reload();
    pool.rig.wait_for_members(4);
    wait_until_it_works(&pool, 3);

    let load = program.ok("stop_load", json!({}));
    assert_eq!(load["failed"], json!({}), "{load}");
    let status = pool.rig.status();
    for member in status["members"].as_array().unwrap() {
        assert_eq!(member["unproved"], 0, "{member}");
    }
}
