use hsmux_smartcard::cvc::Certificate;
use hsmux_smartcard::{CardChannel, StatusWord, tlv};
use hsmux_vcard::{Card, Profile};

use crate::host::{ALL, Host, SELECT, update};

#[test]
fn the_atr_is_one_that_opensc_knows() {
    let mut card = Card::new(Profile::new("VC000001")).unwrap();
    assert!(card.transmit(&[0, 0xA4, 4, 0]).is_empty(), "without power");
    let atr = card.power_on();
    assert_eq!(
        hex::encode_upper(atr),
        "3BFE1800008131FE458031815448534D31738021408107FA"
    );
    // The last byte is the exclusive or of the others (ISO/IEC 7816-3, section 8.2.5).
    assert_eq!(atr[1..].iter().fold(0, |sum, byte| sum ^ byte), 0);
    assert_eq!(card.reset(), atr);
}

#[test]
fn nothing_but_select_before_the_application_is_selected() {
    let mut host = Host::new();
    host.slot.card().reset();
    assert_eq!(host.status(0x80, 0x58, 0, 0, &[]), 0x6D00);
    assert_eq!(host.status(0, 0xA4, 0, 0, &[0x2F, 2]), 0x6A82);
    assert_eq!(host.status(0, 0xA4, 4, 0, &[0xA0, 0, 0, 0, 3]), 0x6A82);
    // sc-hsm-embedded selects with P2 04.
    host.ok(0, 0xA4, 4, 4, SELECT, Some(256));
    assert_eq!(host.status(0x80, 0x58, 0, 0, &[]), 0x9000);
}

#[test]
fn control_parameters_of_the_application_and_of_files() {
    let mut host = Host::ready(1);
    let fcp = host.select();
    let fcp = tlv::find(&fcp, 0x62).unwrap();
    assert_eq!(fcp.child(0x84).unwrap().value, SELECT);
    // Options, type, version.
    assert_eq!(fcp.child(0x85).unwrap().value, [0, 1, 1, 3, 4]);

    let fcp = host.ok(0, 0xA4, 0, 0, &[0x2F, 2], Some(256));
    let fcp = tlv::find(&fcp, 0x62).unwrap();
    let size = u16::from_be_bytes(fcp.child(0x80).unwrap().value.try_into().unwrap());
    assert_eq!(usize::from(size), host.read(0x2F02).data.len());
    assert_eq!(host.status(0, 0xA4, 0, 0, &[0xC4, 1]), 0x6A82);
    assert_eq!(host.status(0, 0xA4, 0, 0, &[0xC4]), 0x6700);
}

#[test]
fn the_device_certificate_has_the_serial_number_and_a_worthless_issuer() {
    let mut host = Host::new();
    let file = host.read(0x2F02).data;
    let chain = Certificate::parse_all(&file).unwrap();
    let [device, issuer] = &chain[..] else {
        panic!("{} certificates", chain.len())
    };
    assert_eq!(device.serial(), "VC000001");
    let key = issuer.public_key.to_public_key().unwrap();
    let algorithm = issuer.public_key.algorithm();
    device.verify(&key, algorithm).unwrap();
    issuer.verify(&key, algorithm).unwrap();
    assert!(file.windows(8).any(|name| name == b"NOSECURE"));
}

#[test]
fn the_label_says_that_it_protects_nothing_until_the_host_writes_its_own() {
    let mut host = Host::new();
    assert_eq!(host.read(0x2F03).status, StatusWord::FILE_NOT_FOUND);
    host.initialize(None);
    let info = host.read(0x2F03).data;
    let label = tlv::find(&info, 0x30).unwrap().child(0x80).unwrap();
    assert_eq!(label.value, b"Virtual card: protects nothing");
    host.login();
    assert_eq!(host.write(0x2F03, b"own"), 0x9000);
    assert_eq!(*host.read(0x2F03).data, b"own");
}

#[test]
fn files_are_made_written_in_parts_read_in_parts_and_deleted() {
    let mut host = Host::ready(1);
    // OpenSC creates an empty file, then writes to the current file.
    assert_eq!(host.status(0, 0xD7, 0xC4, 5, &update(0, &[])), 0x9000);
    let content: Vec<u8> = (0..=255).cycle().take(700).collect();
    assert_eq!(
        host.status(0, 0xD7, 0, 0, &update(0, &content[..600])),
        0x9000
    );
    assert_eq!(
        host.status(0, 0xD7, 0, 0, &update(600, &content[600..])),
        0x9000
    );
    assert_eq!(host.status(0, 0xD7, 0, 0, &update(701, &[1])), 0x6B00);
    assert_eq!(host.read(0xC405).data.to_vec(), content);
    assert!(host.enumerate().contains(&0xC405));

    host.ok(0, 0xA4, 0, 0, &[0xC4, 5], Some(256));
    let part = host.answer((0, 0xB1), (0, 0), &[0x54, 2, 2, 0], Some(100));
    assert_eq!(
        (part.status, &part.data[..]),
        (StatusWord::OK, &content[512..612])
    );
    let end = host.answer((0, 0xB1), (0, 0), &[0x54, 2, 2, 0], Some(200));
    assert_eq!((end.status, end.data.len()), (StatusWord::END_OF_FILE, 188));
    let beyond = host.answer((0, 0xB1), (0, 0), &[0x54, 2, 2, 188], Some(200));
    assert_eq!(
        (beyond.status, beyond.data.len()),
        (StatusWord::END_OF_FILE, 0)
    );
    assert_eq!(host.status(0, 0xB1, 0, 0, &[0x54, 2, 2, 189]), 0x6B00);
    assert_eq!(host.status(0, 0xB1, 0, 0, &[0x55, 1, 0]), 0x6A80);

    // Offset 0 replaces the file.
    assert_eq!(host.write(0xC405, b"short"), 0x9000);
    assert_eq!(*host.read(0xC405).data, b"short");
    assert_eq!(host.status(0, 0xE4, 2, 0, &[0xC4, 5]), 0x9000);
    assert_eq!(host.status(0, 0xE4, 2, 0, &[0xC4, 5]), 0x6A82);
    assert_eq!(host.read(0xC405).status, StatusWord::FILE_NOT_FOUND);
    assert_eq!(host.status(0, 0xB1, 0, 0, &[0x54, 2, 0, 0]), 0x6A82);
}

#[test]
fn who_may_read_and_write_what() {
    let mut host = Host::ready(1);
    assert_eq!(host.write(0xCD01, b"for the user"), 0x9000);
    assert_eq!(host.write(0xCF01, b"for everybody"), 0x9000);
    assert_eq!(host.write(0x2F02, b"forged"), 0x6982);
    assert_eq!(host.write(0xCC01, b"a key"), 0x6982);
    assert_eq!(host.read(0xCC00).status, StatusWord::NOT_LOGGED_IN);
    assert_eq!(host.status(0, 0xE4, 2, 0, &[0xCC, 0]), 0x6982);
    assert_eq!(host.status(0, 0xE4, 2, 0, &[0x2F, 2]), 0x6982);
    assert_eq!(*host.read(0xCD01).data, b"for the user");
    host.select();
    assert_eq!(host.read(0xCD01).status, StatusWord::NOT_LOGGED_IN);
    assert_eq!(*host.read(0xCF01).data, b"for everybody");
    assert_eq!(host.write(0xCF01, b"x"), 0x6982);
    assert_eq!(host.status(0, 0xE4, 2, 0, &[0xCF, 1]), 0x6982);
}

#[test]
fn objects_are_enumerated_keys_first() {
    let mut host = Host::ready(1);
    host.ok(0, 0x48, 3, 0xB0, &[], None);
    for id in [0xC403, 0xCA01, 0xC801, 0x2F10] {
        assert_eq!(host.write(id, b"x"), 0x9000);
    }
    assert_eq!(host.enumerate(), [0xCC00, 0xCC03, 0xC403, 0xC801, 0xCA01]);
}

#[test]
fn a_long_answer_to_a_short_command_comes_in_parts() {
    let mut host = Host::ready(1);
    host.write(0xCF01, b"data");
    let first = host.answer((0x80, 0x58), (0, 0), &[], Some(3));
    assert_eq!(
        (first.status, &first.data[..]),
        (StatusWord::more_data(1), &[0xCC, 0, 0xCF][..])
    );
    assert_eq!(host.ok(0, 0xC0, 0, 0, &[], Some(1)), [1]);
    assert_eq!(host.status(0, 0xC0, 0, 0, &[]), 0x6985);

    // The last part has the status for end of file.
    let content = [7; 300];
    host.write(0xCF01, &content);
    let part = host.answer((0, 0xB1), (0xCF, 1), &[0x54, 2, 0, 0], Some(256));
    assert_eq!((part.status, part.data.len()), (StatusWord::OK, 256));
}

#[test]
fn a_card_that_is_full_says_so_and_stays_as_it_was() {
    let mut host = Host::ready_with(Profile::new("VC000001").capacity(2000), 1);
    assert_eq!(host.write(0xCF01, &[1; 700]), 0x9000);
    assert_eq!(host.write(0xCF02, &[2; 1200]), 0x6A84);
    assert_eq!(host.read(0xCF02).status, StatusWord::FILE_NOT_FOUND);
    assert_eq!(host.read(0xCF01).data.len(), 700);
    let body = crate::host::rsa_body(1024);
    assert_eq!(host.status(0, 0x46, 1, 0, &body), 0x6A84);
    assert!(!host.enumerate().contains(&0xCC01));
    assert!(!host.enumerate().contains(&0xCE01));
}

#[test]
fn what_the_card_does_not_have() {
    let mut host = Host::ready(1);
    // Authentication with public keys, session PINs.
    assert_eq!(host.status(0x80, 0x54, 0, 0, &[]), 0x6D00);
    assert_eq!(host.status(0, 0x22, 0x81, 0xB6, &[0x83, 1, 1]), 0x6A81);
    assert_eq!(host.status(0, 0x2A, 0, 0xBE, &[0x7F, 0x21, 0]), 0x6A81);
    assert_eq!(host.status(0x80, 0x5A, 1, 0x81, &[]), 0x6D00);
    assert_eq!(host.status(0x10, 0x58, 0, 0, &[]), 0x6884);
    assert_eq!(host.status(0x40, 0x58, 0, 0, &[]), 0x6E00);
    assert_eq!(host.channel.transmit(&[0, 0x84]).unwrap(), [0x67, 0]);
}

#[test]
fn random_bytes() {
    let mut host = Host::new();
    let (one, other) = (
        host.ok(0, 0x84, 0, 0, &[], Some(16)),
        host.ok(0, 0x84, 0, 0, &[], Some(16)),
    );
    assert_eq!((one.len(), other.len()), (16, 16));
    assert_ne!(one, other);
    assert_eq!(host.ok(0, 0x84, 0, 0, &[], ALL).len(), 1024);
}

#[test]
fn serial_numbers_that_fit_no_certificate() {
    for serial in ["", "AB", "ABCDEFGHIJKL", "A B C", "Kärtchen"] {
        assert!(Card::new(Profile::new(serial)).is_err(), "{serial}");
    }
}
