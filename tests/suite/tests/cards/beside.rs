//! `hsmux card` beside bad cards, members and a record of PINs.

use std::fs;

use hsmux_suite::{CardPool, Cards, PATIENCE, Run, until, write_secret};
use hsmux_vcard::{Order, Timing};
use serde_json::Value;

const KEY: [(&str, &str, &str); 1] = [("EC:prime256v1", "10", "ec")];
const WRONG: &str = "999999";

/// Two cards as members of a daemon that does not run yet.
fn pool() -> CardPool {
    let pool = CardPool::prepare(2, &Timing::None, &KEY);
    write_secret(&pool.cards.path("wrong.pin"), WRONG);
    pool.rig.write_config();
    pool
}

fn backup(pool: &CardPool, index: usize, pin: &str) -> Run {
    let serial = Cards::serial(index);
    let file = format!("backup-{index}");
    let _ = fs::remove_file(pool.cards.path(&file));
    pool.card_beside(&format!("backup {file} --card {serial} --pin file:{pin}"))
}

fn listed(run: Run) -> (i32, Value) {
    let run = run.finish();
    let listed = serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {run}"));
    (run.code.unwrap(), listed)
}

/// What a card says of its user's PIN.
fn tries(pool: &CardPool, index: usize) -> String {
    let (_, listed) = listed(pool.card_beside("list --json"));
    let cards = listed["cards"].as_array().unwrap();
    let of_card = |card: &&Value| card["serial"] == Cards::serial(index).as_str();
    let card = cards.iter().find(of_card).unwrap();
    card["pin"].as_str().unwrap().to_owned()
}

#[test]
fn a_bad_card_hides_no_other() {
    let pool = pool();
    // ENUMERATE OBJECTS.
    let refuses: Order = "status=6F00".parse().unwrap();
    pool.cards.readers.obey(1, refuses.only(None, Some(0x58)));
    let (code, found) = listed(pool.card_beside("list --json"));
    assert_eq!(code, 3, "{found}");
    assert_eq!(found["cards"][0]["keys"].as_array().unwrap().len(), 1);
    assert_eq!(found["cards"][1]["serial"], Cards::serial(1).as_str());
    let error = found["cards"][1]["error"].as_str().unwrap();
    assert!(error.contains("6F00"), "{error}");
    pool.card_beside("list").finish().says("6F00");

    pool.cards.readers.obey(1, Order::Clear);
    assert_eq!(listed(pool.card_beside("list --json")).0, 0);

    // One that does not even say its serial number.
    pool.cards.readers.obey(1, "mute".parse().unwrap());
    let (code, found) = listed(pool.card_beside("list --json"));
    assert_eq!(code, 3, "{found}");
    assert_eq!(found["cards"].as_array().unwrap().len(), 1, "{found}");
    let others = found["others"].to_string();
    assert!(others.contains(&pool.cards.readers.name(1)), "{others}");
}

/// A PIN that one of our processes has seen refused costs no other a try.
#[test]
fn a_refused_pin_is_tried_once_by_all_together() {
    let mut pool = pool();
    backup(&pool, 0, "wrong.pin").fails().says("tried once");
    assert_eq!(tries(&pool, 0), "2 tries left");
    backup(&pool, 0, "wrong.pin")
        .fails()
        .says("not tried again")
        .says("hsmux pin release 'pkcs11:serial=");
    assert_eq!(tries(&pool, 0), "2 tries left");

    // The daemon does not try it on that card, and is the first to try it on the other.
    for card in 0..2 {
        pool.rig.write_pin(&Cards::serial(card), WRONG);
    }
    pool.start_daemon();
    until("both are parked", PATIENCE, || {
        (pool.rig.members_in("parked").len() == 2).then_some(())
    });
    pool.rig.stop();
    backup(&pool, 1, "wrong.pin")
        .fails()
        .says("not tried again");
    for card in 0..2 {
        assert_eq!(tries(&pool, card), "2 tries left");
    }

    // The right one is another.
    backup(&pool, 1, "user.pin").ok();
    assert_eq!(tries(&pool, 1), "3 tries left");
    backup(&pool, 1, "wrong.pin")
        .fails()
        .says("not tried again");
    let release = format!("pin release pkcs11:serial={}", Cards::serial(1));
    pool.rig.hsmux(&release).ok();
    backup(&pool, 1, "wrong.pin").fails().says("tried once");
    assert_eq!(tries(&pool, 1), "2 tries left");
}

/// A PIN that the pool itself has set counts as right, also if the token had refused it before.
#[test]
fn a_pin_that_was_set_is_no_longer_the_refused_one() {
    let pool = pool();
    let serial = Cards::serial(0);
    backup(&pool, 0, "wrong.pin").fails().says("tried once");
    pool.card_beside(&format!("pin change --card {serial}"))
        .args("--pin file:user.pin --new-pin file:wrong.pin")
        .ok();
    backup(&pool, 0, "wrong.pin").ok();
    pool.card_beside(&format!("pin unblock --card {serial}"))
        .args("--so-pin file:so.pin --new-pin file:user.pin")
        .ok();
    backup(&pool, 0, "user.pin").ok();
    assert_eq!(tries(&pool, 0), "3 tries left");
}

/// It may be about to use any card: it rests meanwhile, and is asked for again afterwards.
#[test]
fn a_member_without_its_token_is_parked_too() {
    let mut pool = pool();
    let mut unknown = pool.rig.config.members.remove(1);
    unknown.label = "unknown".into();
    unknown.uri = "pkcs11:token=unknown".into();
    pool.rig.write_pin("unknown", Cards::PIN);
    pool.rig.config.members.push(unknown);
    pool.start_daemon();
    until("one serves, one does not", PATIENCE, || {
        let states = ["serving", "resting"].map(|state| pool.rig.members_in(state).len());
        (states == [1, 1]).then_some(())
    });
    backup(&pool, 1, "user.pin").ok();
    // The card of the other was never touched.
    pool.rig
        .hsmux("audit")
        .ok()
        .says("unknown")
        .never_says(&Cards::serial(0));
    assert!(pool.rig.members_in("parked").is_empty());
    assert_eq!(pool.rig.members_in("serving"), [Cards::serial(0)]);
}
