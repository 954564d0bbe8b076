//! A new key to other cards, beside the program that is logged in to them.

use hsmux_smartcard::dkek::DkekShare;
use hsmux_smartcard::provision::ProvisionError;
use hsmux_smartcard::provision::new_key::{NewKeySearch, check_value, put, sweep, take};
use hsmux_smartcard::{FileKind, KeyReference, PinReference, PinStatus};

use crate::rig::{PIN, Plugged, secret, shares};

/// A card that some program is logged in to.
fn in_use(serial: &str, shares: &[DkekShare]) -> Plugged {
    let card = Plugged::ready(serial, shares);
    log_in(&card);
    card
}

fn log_in(plugged: &Plugged) {
    let mut card = plugged.card();
    card.select().unwrap();
    card.verify(&secret(PIN)).unwrap();
}

fn note(card: &Plugged, id: u8) -> NewKeySearch {
    NewKeySearch::note(&mut card.card(), &card.serial, &[id]).unwrap()
}

/// The numbers of the keys that have all their files.
fn keys(plugged: &Plugged) -> Vec<u8> {
    let mut numbers: Vec<_> = plugged
        .files()
        .iter()
        .map(|(file, _)| file.0 & 0xFF)
        .collect();
    numbers.dedup();
    numbers.sort_unstable();
    numbers.dedup();
    log_in(plugged);
    numbers.into_iter().map(|number| number as u8).collect()
}

#[test]
fn a_new_key_goes_to_another_card_and_the_login_stays() {
    let shares = shares();
    let (one, other) = (in_use("NEW000000", &shares), in_use("NEW000001", &shares));
    let expected = note(&one, 1);
    one.ec_key(1, "P-256");
    log_in(&one);
    let package = take(&mut one.card(), &one.serial, &expected).unwrap();
    put(&mut other.card(), &other.serial, &package).unwrap();
    for card in [&one, &other] {
        let status = card.card().pin_status(PinReference::User).unwrap();
        assert_eq!(status, PinStatus::LoggedIn);
    }
    assert_eq!(one.files(), other.files());
    // Once more is no second key.
    log_in(&other);
    put(&mut other.card(), &other.serial, &package).unwrap();
    assert_eq!(keys(&other), [1]);
}

#[test]
fn where_its_number_is_taken_it_gets_another() {
    let shares = shares();
    let (one, other) = (in_use("NEW000010", &shares), in_use("NEW000011", &shares));
    let expected = note(&one, 2);
    one.ec_key(2, "P-256");
    log_in(&one);
    let package = take(&mut one.card(), &one.serial, &expected).unwrap();
    other.rsa_key(2);
    log_in(&other);
    // Keys with the same CKA_ID are told apart by what they do.
    put(&mut other.card(), &other.serial, &package).unwrap();
    assert_eq!(keys(&other), [1, 2]);
    put(&mut other.card(), &other.serial, &package).unwrap();
    assert_eq!(keys(&other), [1, 2]);
}

#[test]
fn what_was_there_before_is_not_swept_and_half_a_key_is() {
    let card = in_use("NEW000020", &shares());
    card.ec_key(1, "P-256");
    log_in(&card);
    let expected = note(&card, 2);
    assert!(!sweep(&mut card.card(), &card.serial, &expected).unwrap());
    card.ec_key(2, "P-256");
    card.ec_key(3, "P-256");
    card.ec_key(4, "P-256");
    card.logged_in(|card| {
        let description = KeyReference(4).file(FileKind::KeyDescription);
        card.delete_file(description).unwrap();
    });
    log_in(&card);
    assert!(sweep(&mut card.card(), &card.serial, &expected).unwrap());
    // 3 has another CKA_ID: somebody else has made it.
    assert_eq!(keys(&card), [1, 3]);
}

#[test]
fn half_a_key_is_completed() {
    let shares = shares();
    let (one, other) = (in_use("NEW000030", &shares), in_use("NEW000031", &shares));
    let expected = note(&one, 1);
    one.ec_key(1, "P-256");
    log_in(&one);
    let package = take(&mut one.card(), &one.serial, &expected).unwrap();
    put(&mut other.card(), &other.serial, &package).unwrap();
    for kind in [FileKind::KeyDescription, FileKind::Certificate] {
        let mut card = other.card();
        card.delete_file(KeyReference(1).file(kind)).unwrap();
    }
    put(&mut other.card(), &other.serial, &package).unwrap();
    assert_eq!(one.files(), other.files());
}

#[test]
fn refusals_touch_nothing_and_show_no_pin() {
    let (one, alien) = (
        in_use("NEW000040", &shares()),
        in_use("NEW000041", &shares()),
    );
    let expected = note(&one, 1);
    one.ec_key(1, "P-256");
    let error = take(&mut one.card(), &one.serial, &expected).unwrap_err();
    assert!(matches!(error, ProvisionError::NotInUse { .. }), "{error}");
    log_in(&one);
    let package = take(&mut one.card(), &one.serial, &expected).unwrap();
    let error = put(&mut alien.card(), &alien.serial, &package).unwrap_err();
    assert!(matches!(error, ProvisionError::OtherDkek { .. }), "{error}");
    assert!(alien.files().is_empty());
    let expected = note(&one, 7);
    let error = take(&mut one.card(), &one.serial, &expected).unwrap_err();
    assert!(
        matches!(error, ProvisionError::NotOneNewKey { .. }),
        "{error}"
    );
    let without = Plugged::blank("NEW000042");
    without.initialise(&crate::rig::how(None));
    log_in(&without);
    let error = check_value(&mut without.card(), &without.serial).unwrap_err();
    assert!(
        matches!(error, ProvisionError::WithoutDkek { .. }),
        "{error}"
    );
    assert_eq!(one.tries(), PinStatus::TriesLeft(3));
}
