//! Cards that are pulled, and a pcscd that goes away.

use std::time::Duration;

use hsmux_suite::{Cards, until};
use hsmux_vcard::Order;

/// pcscd looks every 0.4 s.
const NOTICED: Duration = Duration::from_secs(5);

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
    until("pcscd notices", NOTICED, || {
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
    until("its end", NOTICED, || {
        (!cards.readers.running()).then_some(())
    });
    cards.pkcs11_tool(0, "-O").fails();
    cards.readers.start_pcscd().unwrap();
    cards.sign_and_verify(0, "10", "ec", "ECDSA-SHA256");
}

/// No command takes the 50 ms that an acknowledgement of TCP may wait.
#[test]
fn a_command_takes_no_time_on_the_way() {
    let cards = Cards::start(1);
    let command = "-s 0084000008 ".repeat(100);
    let run = cards.run("opensc-tool").args(&command).ok();
    assert_eq!(run.out.matches("SW1=0x90").count(), 100, "{run}");
    assert!(run.took < Duration::from_secs(2), "{run}");
}
