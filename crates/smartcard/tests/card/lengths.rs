use hsmux_smartcard::{Card, CardError, CommandApdu, KeyReference, SignAlgorithm, StatusWord};

use super::script::{Parrot, card, done};

fn enumerate() -> CommandApdu {
    CommandApdu::new(0x80, 0x58, 0, 0).expecting(256)
}

#[test]
fn a_long_answer_is_fetched_in_parts() {
    let mut card = card(&[
        ("80580000 00", "0102 6102"),
        ("00C00000 02", "0304 6100"),
        ("00C00000 00", "05 9000"),
    ]);
    let response = card.transmit("ENUMERATE OBJECTS", enumerate()).unwrap();
    assert_eq!(response.data.as_slice(), [1, 2, 3, 4, 5]);
    assert_eq!(response.status, StatusWord::OK);
    done(card);
}

#[test]
fn a_wrong_length_is_corrected_once() {
    let mut card = card(&[("80580000 00", "6C02"), ("80580000 02", "CC01 9000")]);
    let response = card.transmit("ENUMERATE OBJECTS", enumerate()).unwrap();
    assert_eq!(response.data.as_slice(), [0xCC, 1]);
    done(card);
}

#[test]
fn an_answer_without_end_is_an_error() {
    for endless in [vec![0x61, 0x00], vec![0xAA, 0x61, 0x01]] {
        let mut card = Card::new(Parrot(endless));
        let error = card.transmit("ENUMERATE OBJECTS", enumerate()).unwrap_err();
        assert!(matches!(error, CardError::BadAnswer { .. }), "{error}");
        assert!(error.to_string().contains("61xx without an end"), "{error}");
    }
}

#[test]
fn an_answer_of_more_than_65536_bytes_is_an_error() {
    let part = format!("{} 6100", "AA".repeat(40_000));
    let part = part.as_str();
    let mut card = card(&[("80580000 00", part), ("00C00000 00", part)]);
    let error = card.transmit("ENUMERATE OBJECTS", enumerate()).unwrap_err();
    assert!(error.to_string().contains("61xx without an end"), "{error}");
    done(card);
}

#[test]
fn lengths_that_are_never_right_are_an_error() {
    let mut card = Card::new(Parrot(vec![0x6C, 0x10]));
    let error = card
        .sign(KeyReference(1), SignAlgorithm::Ecdsa, &[0; 32])
        .unwrap_err();
    assert_eq!(error.status(), Some(StatusWord::wrong_le(0x10)));
}

#[test]
fn answers_without_a_status_are_an_error() {
    for answer in [vec![], vec![0x90]] {
        let error = Card::new(Parrot(answer)).enumerate().unwrap_err();
        assert!(matches!(error, CardError::BadAnswer { .. }), "{error}");
        assert!(error.to_string().starts_with("parrot: ENUMERATE OBJECTS"));
    }
}

#[test]
fn a_card_without_extended_lengths_gets_its_commands_in_parts() {
    let data = [7; 300];
    let (first, second) = (hex::encode(&data[..255]), hex::encode(&data[255..]));
    let whole = format!("80680120 00012C {} 0200", hex::encode(data));
    let parts = [
        (format!("90680120 FF {first}"), "9000"),
        (format!("80680120 2D {second} 00"), "AA 6101"),
    ];
    let script = [
        (whole.as_str(), "6700"),
        (&parts[0].0, parts[0].1),
        (&parts[1].0, parts[1].1),
        ("00C00000 01", "BB 9000"),
        // It is remembered.
        (&parts[0].0, parts[0].1),
        (&parts[1].0, "CC 9000"),
    ];
    let mut card = card(&script);
    let key = KeyReference(1);
    assert_eq!(
        card.sign(key, SignAlgorithm::RsaRaw, &data).unwrap(),
        [0xAA, 0xBB]
    );
    assert_eq!(
        card.sign(key, SignAlgorithm::RsaRaw, &data).unwrap(),
        [0xCC]
    );
    done(card);
}

#[test]
fn data_that_are_wrong_on_an_able_card_stay_wrong() {
    let data = [7; 256];
    let whole = format!("80680120 000100 {} 0200", hex::encode(data));
    let part = format!("90680120 FF {}", hex::encode(&data[..255]));
    let mut card = card(&[(&whole, "6700"), (&part, "6884")]);
    let error = card
        .sign(KeyReference(1), SignAlgorithm::RsaRaw, &data)
        .unwrap_err();
    assert_eq!(error.status(), Some(StatusWord::WRONG_LENGTH));
    done(card);
}
