//! New keys of cards whose module does not call their maker CardContact, and of tokens that are no cards though
//! theirs does.

use hsmux_suite::{CardPool, Cards, OPENSC, Rig, Setup, StandIn};
use hsmux_vcard::Timing;
use serde_json::Value;

/// Cards with one DKEK behind OpenSC's module, which calls their maker by another name.
fn cards(count: usize) -> CardPool {
    let mut pool = CardPool::prepare(count, &Timing::None, &[]);
    for (card, member) in pool.rig.config.members.iter_mut().enumerate() {
        let name = Cards::serial(card);
        let mut module = StandIn::new(&pool.cards.path(""), &name, &[&name]);
        module.set_module(&format!("forward = \"{OPENSC}\""));
        module.set(&name, "manufacturer = \"Another Maker\"");
        member.module = pool.cards.path(&format!("{name}.so"));
    }
    pool.start();
    pool
}

#[test]
fn a_card_of_another_maker_gets_new_keys_by_its_dkek() {
    let pool = cards(2);
    let status: Value = serde_json::from_str(&pool.rig.hsmux("status --json").ok().out).unwrap();
    let maker = &status["members"][0]["token"]["manufacturer"];
    assert_eq!(maker, "Another Maker");
    pool.rig
        .hsmux("key generate ec:p256 --label web")
        .limit(120)
        .ok();
    let listed: Value = serde_json::from_str(&pool.card("list --json").out).unwrap();
    for card in listed["cards"].as_array().unwrap() {
        assert_eq!(card["keys"][0]["label"], "web", "{card}");
    }
}

/// The error says what was asked, on whom, and what is lacking, in place of a card that is nowhere.
#[test]
fn a_token_that_is_no_card_is_told_what_it_lacks() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("tokens", &["one", "two"]);
    tokens.set_all("manufacturer = \"www.CardContact.de\"");
    rig.start();
    rig.wait_for_members(2);
    rig.hsmux("key generate ec:p256 --label web")
        .fails()
        .says("one has no wrapping by CKM_RSA_PKCS_OAEP")
        .says("one: no reader")
        .never_says("is in none of the readers");
}
