//! Cards that are pulled, and a pcscd that goes away.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hsmux_suite::{Cards, PATIENCE, until};
use hsmux_vcard::Order;

/// Instruction bytes: GENERATE ASYMMETRIC KEY PAIR, GET CHALLENGE, SIGN.
const GENERATE: u8 = 0x46;
const CHALLENGE: u8 = 0x84;
const SIGN: u8 = 0x68;

fn seen(cards: &Cards, index: usize) -> bool {
    let list = cards.run("opensc-tool").args("-l").finish();
    let line = list
        .out
        .lines()
        .find(|line| line.ends_with(&cards.readers.name(index)));
    line.is_some_and(|line| line.contains(" Yes "))
}

#[test]
fn a_pulled_card_is_gone_and_comes_back_with_its_keys() {
    let cards = Cards::start(2);
    cards.generate(1, "EC:prime256v1", "10", "ec");
    cards.readers.obey(1, Order::Unplug);
    until("pcscd notices", PATIENCE, || {
        (!seen(&cards, 1)).then_some(())
    });
    assert!(seen(&cards, 0));
    cards.pkcs11_tool(0, "-O").ok();
    cards.pkcs11_tool(1, "-O").fails();
    cards.readers.obey(1, Order::Plug);
    cards.readers.wait().unwrap();
    cards.sign_and_verify(1, "10", "ec", "ECDSA-SHA256");
}

#[test]
fn a_new_pcscd_finds_the_cards() {
    let cards = Cards::start(1);
    cards.generate(0, "EC:prime256v1", "10", "ec");
    cards.readers.stop_pcscd();
    cards.pkcs11_tool(0, "-O").fails();
    cards.readers.start_pcscd().unwrap();
    cards.sign_and_verify(0, "10", "ec", "ECDSA-SHA256");
    cards.readers.kill_pcscd();
    until("its end", PATIENCE, || {
        (!cards.readers.running()).then_some(())
    });
    cards.pkcs11_tool(0, "-O").fails();
    cards.readers.start_pcscd().unwrap();
    cards.sign_and_verify(0, "10", "ec", "ECDSA-SHA256");
}

/// In the middle of a new key the power goes: there is no half key, and the card works again.
#[test]
fn a_card_that_loses_its_power_has_no_half_key() {
    let cards = Cards::start(1);
    let order: Order = "power-loss=0".parse().unwrap();
    cards.readers.obey(0, order.only(Some(1), Some(GENERATE)));
    cards
        .pkcs11_tool(0, "--keypairgen --key-type EC:prime256v1 --id 10")
        .fails();
    back(&cards);
    cards.pkcs11_tool(0, "-O").ok().never_says("Private Key");
    cards.generate(0, "EC:prime256v1", "10", "ec");
    cards.sign_and_verify(0, "10", "ec", "ECDSA-SHA256");
}

/// vpcd would wait forever: the reader gives a mute card up, and the program ends.
#[test]
fn a_mute_card_is_given_up() {
    let cards = Cards::start(1);
    let order: Order = "mute".parse().unwrap();
    cards.readers.obey(0, order.only(Some(1), Some(CHALLENGE)));
    cards.run("opensc-tool").args("-s 0084000008").fails();
    back(&cards);
    cards.run("opensc-tool").args("-s 0084000008").ok();
}

#[test]
fn a_wrong_signature_does_not_verify() {
    let cards = Cards::start(1);
    cards.generate(0, "EC:prime256v1", "10", "ec");
    let order: Order = "wrong-signature".parse().unwrap();
    std::fs::write(cards.path("data"), "what is signed").unwrap();
    let sign = "--sign --id 10 -m ECDSA-SHA256 --signature-format openssl -i data -o signature";
    let verify = "dgst -sha256 -verify ec.pub -signature signature data";
    cards.readers.obey(0, order.only(Some(1), Some(SIGN)));
    cards.pkcs11_tool(0, sign).ok();
    cards.run("openssl").args(verify).fails();
    cards.pkcs11_tool(0, sign).ok();
    cards.run("openssl").args(verify).ok();
}

/// Programs fail while pcscd is away, none of them hangs, and after each start all of them work.
#[test]
fn pcscd_is_restarted_under_load() {
    let cards = Cards::start(2);
    let over = AtomicBool::new(false);
    let worked = [0, 0].map(AtomicUsize::new);
    let load = |card: usize| {
        let command = format!("--reader {card} -s 0084000008");
        while !over.load(Ordering::Relaxed) {
            let run = cards.run("opensc-tool").args(&command);
            if run.finish().code == Some(0) {
                worked[card].fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let counts = || [0, 1].map(|card: usize| worked[card].load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        let load = &load;
        let loads = [0, 1].map(|card| scope.spawn(move || load(card)));
        for _ in 0..3 {
            cards.readers.start_pcscd().unwrap();
            let before = counts();
            until("all work again", PATIENCE, || {
                let now = counts();
                (0..2).all(|card| now[card] > before[card]).then_some(())
            });
        }
        over.store(true, Ordering::Relaxed);
        for load in loads {
            load.join().unwrap();
        }
    });
}

/// Waits until a card that was gone for a moment is there again.
fn back(cards: &Cards) {
    cards.readers.wait().unwrap();
    until("the card is back", PATIENCE, || {
        seen(cards, 0).then_some(())
    });
}

/// No command takes the 40 ms that an acknowledgement of TCP may wait, which would be four seconds for all.
/// A machine with other things to do may be slow now and then.
#[test]
fn a_command_takes_no_time_on_the_way() {
    let cards = Cards::start(1);
    let command = "-s 0084000008 ".repeat(100);
    until("a hundred commands take no time", PATIENCE, || {
        let run = cards.run("opensc-tool").args(&command).ok();
        assert_eq!(run.out.matches("SW1=0x90").count(), 100, "{run}");
        (run.took < Duration::from_secs(3)).then_some(())
    });
}
