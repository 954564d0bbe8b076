//! Cards of one serial number, of which a command takes none until it is told which.

use hsmux_suite::{Cards, Program, Run, built, write_secret};
use serde_json::Value;

const TWIN: &str = "TWIN00001";
const OTHER: &str = "OTHER0001";

/// Two initialised cards of one serial number with a key each, and a third card; the PINs are in files.
fn twins() -> Cards {
    let cards = Cards::with_serials(&[TWIN, TWIN, OTHER]);
    write_secret(&cards.path("user.pin"), Cards::PIN);
    write_secret(&cards.path("so.pin"), Cards::SO_PIN);
    for card in 0..3 {
        cards.initialise(card, "--dkek-shares 0");
        cards.generate(card, "EC:prime256v1", "10", &format!("key{card}"));
    }
    cards
}

fn card(cards: &Cards, line: &str) -> Run {
    cards
        .run(built(Program::Hsmux).to_str().unwrap())
        .args("card")
        .args(line)
}

fn list(cards: &Cards) -> Vec<Value> {
    let listed = card(cards, "list --json").ok();
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    listed["cards"].as_array().unwrap().clone()
}

/// The names of the readers, in the order of the cards.
fn readers(cards: &Cards) -> Vec<String> {
    let listed = list(cards);
    let name = |card: &Value| card["reader"].as_str().unwrap().to_owned();
    listed.iter().map(name).collect()
}

fn labels(cards: &Cards) -> Vec<String> {
    let listed = list(cards);
    let label = |card: &Value| card["label"].as_str().unwrap().to_owned();
    listed.iter().map(label).collect()
}

/// Initialises a card as "new", unless it is refused.
fn init(cards: &Cards) -> Run {
    card(
        cards,
        "init --label new --dkek-shares 0 --so-pin file:so.pin --pin file:user.pin --yes",
    )
}

#[test]
fn init_erases_none_of_two_and_then_the_one_that_is_named() {
    let cards = twins();
    let readers = readers(&cards);
    let refused = init(&cards).args(&format!("--card {TWIN}")).fails();
    for reader in &readers[..2] {
        refused.says(&format!("--reader '{reader}'"));
    }
    refused.says(TWIN).never_says(&readers[2]);
    // Nor without any name, where all three may be meant.
    let refused = init(&cards).fails();
    for reader in &readers {
        refused.says(&format!("--reader '{reader}'"));
    }
    assert_eq!(labels(&cards), ["card0", "card1", "card2"]);
    cards.sign_and_verify(0, "10", "key0", "ECDSA-SHA256");
    cards.sign_and_verify(1, "10", "key1", "ECDSA-SHA256");

    init(&cards)
        .args(&format!("--card {TWIN} --reader"))
        .arg(&readers[1])
        .ok()
        .says(TWIN);
    assert_eq!(labels(&cards), ["card0", "new", "card2"]);
    cards.sign_and_verify(0, "10", "key0", "ECDSA-SHA256");
    assert_eq!(list(&cards)[1]["keys"], serde_json::json!([]));
}

#[test]
fn a_reader_alone_is_enough_and_contradicts_another_serial_number() {
    let cards = twins();
    let readers = readers(&cards);
    init(&cards)
        .args(&format!("--card {OTHER} --reader"))
        .arg(&readers[0])
        .fails()
        .says(&format!("no card {OTHER} in reader '{}'", readers[0]))
        .says(TWIN);
    // A part of a name is none.
    init(&cards)
        .arg("--reader")
        .arg(&readers[0][..readers[0].len() - 1])
        .fails()
        .says("there is no reader")
        .says(&readers[1]);
    assert_eq!(labels(&cards), ["card0", "card1", "card2"]);
    init(&cards).arg("--reader").arg(&readers[0]).ok();
    assert_eq!(labels(&cards), ["new", "card1", "card2"]);
}

/// No PIN is shown to a card that may be another one.
#[test]
fn commands_with_a_pin_ask_which_card() {
    let cards = twins();
    let readers = readers(&cards);
    write_secret(&cards.path("wrong.pin"), "999999");
    for command in [
        "backup file --pin file:wrong.pin",
        "key wrap file --key 1 --pin file:wrong.pin",
        "pin change --pin file:wrong.pin --new-pin file:user.pin",
        "pin unblock --so-pin file:so.pin",
    ] {
        card(&cards, &format!("{command} --card {TWIN}"))
            .fails()
            .says(&format!("--reader '{}'", readers[0]))
            .says(&format!("--reader '{}'", readers[1]));
    }
    assert!(
        list(&cards)
            .iter()
            .all(|card| card["pin"] == "3 tries left")
    );
    card(&cards, "backup file --pin file:user.pin --reader")
        .arg(&readers[1])
        .ok()
        .says("1 keys");
}

#[test]
fn clone_asks_which_of_two_is_meant() {
    let cards = twins();
    let readers = readers(&cards);
    for line in [
        format!("clone --from {TWIN} --to {OTHER}"),
        format!("clone --from {OTHER} --to {TWIN}"),
        format!("clone --from {OTHER} --all"),
    ] {
        card(&cards, &format!("{line} --pin file:user.pin"))
            .fails()
            .says(&format!("--reader '{}'", readers[0]))
            .says(&format!("--reader '{}'", readers[1]));
    }
    // Both at once are no choice.
    card(
        &cards,
        &format!("clone --from {OTHER} --to {TWIN} --pin file:user.pin"),
    )
    .args("--reader")
    .arg(&readers[0])
    .arg("--reader")
    .arg(&readers[1])
    .fails()
    .says("name one of them");
    // The card in the reader is the one that is compared: its DKEK is its own.
    card(
        &cards,
        &format!("clone --from {OTHER} --to {TWIN} --pin file:user.pin"),
    )
    .arg("--reader")
    .arg(&readers[1])
    .fails()
    .says("nothing was touched")
    .says("key check value");
}
