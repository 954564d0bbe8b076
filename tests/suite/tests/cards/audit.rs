//! What commands do to cards is on the audit trail.

use std::fs;

use hsmux_suite::{Cards, OPENSC, Program, Run, built, write_secret};
use serde_json::Value;

const NEW_PIN: &str = "7359128846";

fn hsmux(cards: &Cards, line: &str) -> Run {
    cards
        .run(built(Program::Hsmux).to_str().unwrap())
        .args(line)
        .args("--config hsmux.toml")
}

/// The trail's lines about cards.
fn trail(cards: &Cards) -> Vec<Value> {
    let trail = hsmux(cards, "audit --json --lines 1000").ok();
    let lines = trail
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_card = |line: &Value| {
        line["act"]
            .as_str()
            .is_some_and(|act| act.starts_with("card-"))
    };
    lines.filter(of_card).collect()
}

/// Without a configuration there is no trail; with one each act has a line before it and one after it, and no line
/// a secret.
#[test]
fn what_is_done_to_cards_is_on_the_audit_trail() {
    let cards = Cards::blank(2);
    cards.set_up(0..2);
    cards.generate(0, "EC:prime256v1", "10", "ec");
    write_secret(&cards.path("new.pin"), NEW_PIN);
    let (first, second) = (Cards::serial(0), Cards::serial(1));
    let config = format!(
        "[pool]\nlabel = \"web\"\n[daemon]\nsocket = \"run/hsmux.sock\"\nstate = \"state\"\n\
         [[token]]\nname = \"one\"\nmodule = \"{OPENSC}\"\nuri = \"pkcs11:serial={first}\"\n\
         pin = {{ file = \"user.pin\" }}\n"
    );
    fs::write(cards.path("hsmux.toml"), config).unwrap();
    assert!(!cards.path("state").exists());

    let pin = "--pin file:user.pin";
    for line in [
        format!(
            "init --card {second} --label again --dkek-shares 1 --so-pin file:so.pin {pin} --yes"
        ),
        format!("dkek import-share share.pbe --card {second} --password file:password"),
        format!("clone --from {first} --to {second} {pin}"),
        format!("key wrap ec.wrapped --key 1 --card {first} {pin}"),
        format!("key unwrap ec.wrapped --key 1 --card {second} {pin}"),
        format!("backup first.backup --card {first} {pin}"),
        format!("restore first.backup --card {second} {pin}"),
        format!("pin change --card {second} {pin} --new-pin file:new.pin"),
        format!("pin unblock --card {second} --so-pin file:so.pin --new-pin file:new.pin"),
    ] {
        hsmux(&cards, &format!("card {line}")).ok();
    }
    // That is the old one by now.
    let refused = format!("card backup second.backup --card {second} {pin}");
    hsmux(&cards, &refused).fails();

    let lines = trail(&cards);
    let acts = [
        "card-init",
        "card-dkek-import-share",
        "card-clone",
        "card-key-wrap",
        "card-key-unwrap",
        "card-backup",
        "card-restore",
        "card-pin-change",
        "card-pin-unblock",
        "card-backup",
    ];
    assert_eq!(lines.len(), 2 * acts.len(), "{lines:?}");
    for (pair, act) in lines.chunks(2).zip(acts) {
        assert!(
            pair.iter().all(|line| line["act"] == act),
            "{act}: {pair:?}"
        );
        assert_eq!(pair[0]["outcome"], "begun");
    }
    let ended: Vec<_> = lines.iter().skip(1).step_by(2).collect();
    let (last, done) = ended.split_last().unwrap();
    assert!(
        done.iter().all(|line| line["outcome"] == "done"),
        "{done:?}"
    );
    assert_ne!(last["outcome"], "done");
    assert_eq!(ended[0]["card"], second.as_str());
    assert_eq!(ended[2]["from"], first.as_str());
    assert_eq!(ended[3]["file"], "ec.wrapped");

    // Digits may be part of a MAC by chance.
    for mut line in lines {
        line.as_object_mut().unwrap().remove("mac");
        let line = line.to_string();
        for secret in [Cards::PIN, NEW_PIN, Cards::SO_PIN, "password-of-the-share"] {
            assert!(!line.contains(secret), "{line}");
        }
    }
}
