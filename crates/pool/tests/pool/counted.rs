//! Keys with use counters: no proof uses them up by itself.

use hsmux_pool::{Options, Pool, SeatState};

use crate::vault::*;

fn serves(pool: &Pool) -> bool {
    pool.status().objects[0].members == ["one"]
}

#[test]
fn a_counted_key_is_proved_when_a_person_asks() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let options = Options {
        counted: vec!["pkcs11:object=key%201".parse().unwrap()],
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one")]);
    let token = one.last();
    let waits = || {
        let replica = &pool.status().objects[0].replicas[0];
        let reason = replica.reason.as_deref().unwrap_or_default();
        reason.contains("use counter") && reason.contains("; hsmux key verify")
    };
    eventually("the key says why it does not serve", waits);
    pool.prove("one").unwrap();
    assert!(waits());
    assert_eq!(token.calls(), 0, "a use of the key");

    pool.prove_counted("one", &[key.id()]).unwrap();
    assert!(serves(&pool));
    assert_eq!(token.calls(), 1);
    // What is proved is not proved again on this connection.
    pool.prove("one").unwrap();
    assert!(serves(&pool));
    assert_eq!(token.calls(), 1);

    token.lose("pulled");
    eventually("it is back", || {
        one.connections() == 2 && pool.status().seats[0].state == SeatState::InService
    });
    eventually("the key waits for a person again", waits);
    assert_eq!(one.last().calls(), 0, "a use of the key");
}

#[test]
fn another_key_is_proved_by_itself() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let options = Options {
        counted: vec!["pkcs11:object=another".parse().unwrap()],
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one")]);
    eventually("the key serves", || serves(&pool));
    let calls = one.last().calls();
    pool.prove_counted("one", &[key.id()]).unwrap();
    assert_eq!(one.last().calls(), calls);
}
