use hsmux_smartcard::{CardError, KeyReference, StatusWord};
use zeroize::Zeroizing;

use super::script::{card, done};

const KEY: KeyReference = KeyReference(5);

#[test]
fn the_application_is_selected() {
    let select = "00A40400 0B E82B0601040181C31F0201 00";
    let mut card = card(&[
        (select, "620A 8508 0000000005FF0304 9000"),
        (select, "6A82"),
        (select, "9000"),
    ]);
    let application = card.select().unwrap();
    assert_eq!(
        (application.version, application.platform),
        ((3, 4), Some(0xFF))
    );
    assert_eq!(
        card.select().unwrap_err().status(),
        Some(StatusWord::FILE_NOT_FOUND)
    );
    let error = card.select().unwrap_err();
    assert!(
        error.to_string().ends_with("is it a SmartCard-HSM?"),
        "{error}"
    );
    done(card);
}

#[test]
fn the_dkek_is_asked_for_and_imported() {
    let share = Zeroizing::new([7; 32]);
    let import = format!("80520000 20 {} 00", "07".repeat(32));
    let mut card = card(&[
        ("80520000 00", "0201 1122334455667788 9000"),
        ("80520000 00", "6D00"),
        ("80520000 00", "0201 11 9000"),
        (&import, "0200 1122334455667788 9000"),
        (&import, "6985"),
    ]);
    let status = card.dkek_status().unwrap().unwrap();
    assert_eq!((status.shares, status.missing), (2, 1));
    assert_eq!(status.key_check_value[..2], [0x11, 0x22]);
    assert_eq!(card.dkek_status().unwrap(), None);
    assert!(card.dkek_status().is_err());
    assert_eq!(card.import_dkek_share(&share).unwrap().missing, 0);
    assert!(card.import_dkek_share(&share).is_err());
    done(card);
}

#[test]
fn keys_are_unwrapped_in_both_ways() {
    let blob = [3; 20];
    let in_command = format!("80740593 14 {}", hex::encode(blob));
    let to_file = format!("00D72F10 1A 54020000 5314 {}", hex::encode(blob));
    let mut card = card(&[
        ("80720592 000000", "AABB 9000"),
        (&in_command, "9000"),
        (&in_command, "6700"),
        (&to_file, "9000"),
        ("80740593", "9000"),
        (&in_command, "6A80"),
        (&in_command, "6A89"),
    ]);
    assert_eq!(card.wrap_key(KEY).unwrap(), [0xAA, 0xBB]);
    card.unwrap_key(KEY, &blob).unwrap();
    card.unwrap_key(KEY, &blob).unwrap();
    let other_dkek = card.unwrap_key(KEY, &blob).unwrap_err();
    assert!(
        other_dkek.to_string().contains("another DKEK"),
        "{other_dkek}"
    );
    assert_eq!(
        card.unwrap_key(KEY, &blob).unwrap_err().status(),
        Some(StatusWord::FILE_EXISTS)
    );
    done(card);
}

#[test]
fn a_blob_longer_than_a_command_goes_by_the_file() {
    let blob = vec![3; 1300];
    let first = format!("00D72F10 0004C7 54020000 538204BF {}", "03".repeat(1215));
    let second = format!("00D72F10 5C 540204BF 5355 {}", "03".repeat(85));
    let second = second.replace(" 5C ", &format!(" {:02X} ", 4 + 2 + 85));
    let mut card = card(&[(&first, "9000"), (&second, "9000"), ("80740593", "9000")]);
    card.unwrap_key(KEY, &blob).unwrap();
    done(card);
}

#[test]
fn random_bytes_come_in_parts() {
    let part = format!("{} 9000", "AB".repeat(1024));
    let mut card = card(&[
        ("00840000 000400", &part),
        ("00840000 02", "0102 9000"),
        ("00840000 02", "9000"),
        ("00840000 02", "010203 9000"),
    ]);
    assert_eq!(card.challenge(1026).unwrap().len(), 1026);
    for _ in 0..2 {
        let error = card.challenge(2).unwrap_err();
        assert!(matches!(error, CardError::BadAnswer { .. }), "{error}");
    }
    done(card);
}
