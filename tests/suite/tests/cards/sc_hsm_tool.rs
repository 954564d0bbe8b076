//! OpenSC's `sc-hsm-tool`.

use std::fs;

use hsmux_suite::{Cards, Terminal};

#[test]
fn a_new_card_says_so() {
    let cards = Cards::blank(1);
    cards
        .status(0)
        .says("Version")
        .says("has never been initialized");
}

#[test]
fn initialising_sets_pins_and_label_and_erases_keys() {
    let cards = Cards::start(1);
    cards
        .status(0)
        .says("SO-PIN tries left    : 15")
        .says("User PIN tries left  : 3")
        .never_says("DKEK");
    cards.generate(0, "EC:prime256v1", "10", "ec");
    cards
        .pkcs11_tool(0, "-L")
        .ok()
        .says("card0")
        .says("CardContact");
    cards.initialise(0, "");
    cards.pkcs11_tool(0, "-O").ok().never_says("Private Key");
}

#[test]
fn a_wrong_so_pin_initialises_nothing() {
    let cards = Cards::start(1);
    cards.generate(0, "EC:prime256v1", "10", "ec");
    // It exits with 0.
    cards
        .sc_hsm_tool(0, "--initialize --so-pin 0000000000000000 --pin 123456")
        .finish();
    cards.status(0).says("SO-PIN tries left    : 14");
    cards.sign_and_verify(0, "10", "ec", "ECDSA-SHA256");
}

#[test]
fn a_key_is_wrapped_on_one_card_and_unwrapped_on_another() {
    let cards = Cards::blank(2);
    let share = "share.pbe --password password-of-the-share";
    cards
        .sc_hsm_tool(0, &format!("--create-dkek-share {share}"))
        .ok();
    assert_eq!(fs::read(cards.path("share.pbe")).unwrap().len(), 64);
    for card in 0..2 {
        cards.initialise(card, "--dkek-shares 1");
        cards
            .status(card)
            .says("DKEK import pending, 1 share(s) still missing");
        cards
            .sc_hsm_tool(card, &format!("--import-dkek-share {share}"))
            .ok();
    }
    assert_eq!(check_value(&cards, 0), check_value(&cards, 1));

    for (id, kind, mechanism) in [
        ("10", "EC:prime256v1", "ECDSA-SHA256"),
        ("11", "rsa:2048", "SHA256-RSA-PKCS"),
    ] {
        cards.generate(0, kind, id, &format!("key{id}"));
        let reference = key_reference(&cards, id);
        wrap(&cards, &reference);
        unwrap(&cards, &reference);
        cards.sign_and_verify(1, id, &format!("key{id}"), mechanism);
    }
    cards.pkcs11_tool(1, "-O").ok().says("key10").says("key11");
}

/// With no shares each card makes a DKEK of its own.
#[test]
fn a_card_with_another_dkek_refuses_the_key() {
    let cards = Cards::blank(2);
    (0..2).for_each(|card| cards.initialise(card, "--dkek-shares 0"));
    assert_ne!(check_value(&cards, 0), check_value(&cards, 1));
    cards.generate(0, "EC:prime256v1", "10", "ec");
    let reference = key_reference(&cards, "10");
    wrap(&cards, &reference);
    unwrap(&cards, &reference);
    cards.pkcs11_tool(1, "-O").ok().never_says("Private Key");
}

/// The password of a share is itself shared: any two of three custodians restore it.
#[test]
fn the_password_of_a_share_is_kept_by_three_custodians() {
    let cards = Cards::blank(1);
    cards.initialise(0, "--dkek-shares 2");
    // The tool restores a number, not bytes: the 1 of 128 passwords that begin with a zero byte are others then.
    let restored = (0..2).any(|n| two_of_three_restore(&cards, &format!("share{n}.pbe")));
    assert!(restored, "neither of two passwords was restored");
    cards
        .status(0)
        .says("DKEK import pending, 1 share(s) still missing");
}

fn two_of_three_restore(cards: &Cards, share: &str) -> bool {
    let created = cards
        .sc_hsm_tool(0, &format!("--create-dkek-share {share}"))
        .args("--pwd-shares-threshold 2 --pwd-shares-total 3")
        .input("\n".repeat(16))
        .ok();
    let values = |name: &str| -> Vec<String> {
        let value = |line: &str| {
            let (_, value) = line.strip_prefix(name)?.split_once(": ")?;
            Some(value.to_owned())
        };
        created.out.lines().filter_map(value).collect()
    };
    let [prime, ids, shares] = ["Prime", "Share ID", "Share value"].map(values);
    assert_eq!((ids.len(), shares.len()), (3, 3), "{created}");
    // The first and the last of the three.
    let answers = format!(
        "{}\n\n{}\n{}\n\n{}\n{}\n",
        prime[0], ids[0], shares[0], ids[2], shares[2]
    );
    let imported = cards
        .sc_hsm_tool(
            0,
            &format!("--import-dkek-share {share} --pwd-shares-total 2"),
        )
        .input(answers)
        .finish();
    println!("{imported}");
    imported.code == Some(0)
}

/// What it asks for at a terminal when no option says it.
#[test]
fn pins_are_asked_for_at_a_terminal() {
    let cards = Cards::blank(1);
    let mut terminal = Terminal::start(cards.sc_hsm_tool(0, "--initialize --label asked"));
    terminal
        .answer_hidden("Enter SO-PIN", Cards::SO_PIN)
        .answer_hidden("Enter initial User-PIN", Cards::PIN);
    let shown = terminal.ok();
    assert!(!shown.contains(Cards::PIN), "{shown}");
    cards.status(0).says("User PIN tries left  : 3");
    cards.pkcs11_tool(0, "-L").ok().says("asked");
}

fn wrap(cards: &Cards, reference: &str) {
    cards
        .sc_hsm_tool(
            0,
            &format!("--wrap-key wrapped --key-reference {reference}"),
        )
        .args(&format!("--pin {}", Cards::PIN))
        .ok();
    assert!(fs::metadata(cards.path("wrapped")).unwrap().len() > 200);
}

/// What it exits with says nothing.
fn unwrap(cards: &Cards, reference: &str) {
    cards
        .sc_hsm_tool(
            1,
            &format!("--unwrap-key wrapped --key-reference {reference}"),
        )
        .args(&format!("--pin {}", Cards::PIN))
        .finish();
    fs::remove_file(cards.path("wrapped")).unwrap();
}

fn check_value(cards: &Cards, card: usize) -> String {
    let status = cards.status(card);
    let value = status
        .out
        .lines()
        .find_map(|line| line.strip_prefix("DKEK key check value :"));
    value
        .unwrap_or_else(|| panic!("no key check value\n{status}"))
        .trim()
        .to_owned()
}

/// The number that the card gave to a key with this CKA_ID.
fn key_reference(cards: &Cards, id: &str) -> String {
    let dump = cards.run("pkcs15-tool").args("--dump").ok();
    let mut reference = None;
    for line in dump.out.lines().map(str::trim) {
        if let Some((_, value)) = line.split_once("Key ref        :") {
            let number = value
                .trim()
                .split(' ')
                .next()
                .and_then(|text| text.parse::<u8>().ok());
            reference = number;
        }
        let of_this_key = line
            .split_once("ID             :")
            .is_some_and(|(_, found)| found.trim() == id);
        if let (true, Some(reference)) = (of_this_key, reference) {
            return reference.to_string();
        }
    }
    panic!("no key {id}\n{dump}");
}
