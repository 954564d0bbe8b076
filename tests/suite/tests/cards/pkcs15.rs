//! OpenSC's tools that read a card without its PKCS#11 module.

use hsmux_suite::Cards;

#[test]
fn the_card_is_known_by_its_name() {
    let cards = Cards::start(2);
    let list = cards.run("opensc-tool").args("-l").ok();
    for index in 0..2 {
        list.says(&cards.readers.name(index));
    }
    assert_eq!(list.out.matches(" Yes ").count(), 2, "{list}");
    cards
        .run("opensc-tool")
        .args("--reader 1 --name")
        .ok()
        .says("SmartCard-HSM");
}

#[test]
fn the_files_describe_keys_and_pins() {
    let cards = Cards::start(1);
    cards.generate(0, "EC:prime256v1", "10", "ec");
    cards.generate(0, "rsa:2048", "11", "rsa");
    let dump = cards.run("pkcs15-tool").args("--dump").ok();
    dump.says("card0")
        .says("UserPIN")
        .says("SOPIN")
        .says("Private EC Key [ec]")
        .says("Private RSA Key [rsa]")
        .says("ModLength      : 2048")
        .says("Tries left     : 3");
    assert_eq!(dump.out.matches("Private ").count(), 2, "{dump}");
}
