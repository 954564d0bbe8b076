//! Single keys in files.

use hsmux_smartcard::KeyReference;
use hsmux_smartcard::dkek::{Dkek, Field, WrappedKeyFile};
use hsmux_smartcard::provision::{KeyPackage, ProvisionError, package};

use crate::rig::{Plugged, shares};

fn wrap(card: &Plugged, number: u8) -> Result<Vec<u8>, ProvisionError> {
    Ok(package::wrap(&mut card.access(), KeyReference(number))?
        .to_file()
        .to_der())
}

fn unwrap(card: &Plugged, file: &[u8], number: u8) -> Result<(), ProvisionError> {
    let file = WrappedKeyFile::parse(file).unwrap();
    let package = KeyPackage::from_file(file, KeyReference(number));
    package::unwrap(&mut card.access(), &package).map(drop)
}

#[test]
fn a_key_goes_by_a_file_and_takes_another_number() {
    let shares = shares();
    let (one, other) = (
        Plugged::ready("WRP000000", &shares),
        Plugged::ready("WRP000001", &shares),
    );
    one.ec_key(1, "P-256");
    one.aes_key(2);
    unwrap(&other, &wrap(&one, 1).unwrap(), 9).unwrap();
    unwrap(&other, &wrap(&one, 2).unwrap(), 2).unwrap();
    let files: Vec<_> = other.files().into_iter().map(|(file, _)| file.0).collect();
    assert_eq!(files, [0xC402, 0xC409, 0xCC02, 0xCC09, 0xCE09]);
    // The same once more is no second key.
    unwrap(&other, &wrap(&one, 1).unwrap(), 9).unwrap();
    let error = unwrap(&other, &wrap(&one, 1).unwrap(), 2).unwrap_err();
    assert!(matches!(error, ProvisionError::Taken { .. }), "{error}");
}

#[test]
fn what_a_card_wraps_opens_with_its_shares() {
    let shares = shares();
    let card = Plugged::ready("WRP000010", &shares);
    card.ec_key(1, "P-256");
    card.rsa_key(2);
    card.aes_key(3);
    let dkek = Dkek::from_shares(&shares);
    for (number, field, length) in [
        (1, Field::Secret, 32),
        (2, Field::Modulus, 128),
        (3, Field::Value, 32),
    ] {
        let file = WrappedKeyFile::parse(&wrap(&card, number).unwrap()).unwrap();
        let key = file.key.open(&dkek).unwrap();
        assert_eq!(key.get(field).map(<[u8]>::len), Some(length), "{field:?}");
        // And the other way round: sealed here, taken in by a card.
        let again =
            hsmux_smartcard::dkek::WrappedKey::seal(&key, file.key.allowed_algorithms(), &dkek);
        let again = WrappedKeyFile {
            key: again.unwrap(),
            ..file
        };
        let other = Plugged::ready("WRP000011", &shares);
        unwrap(&other, &again.to_der(), number).unwrap();
    }
}

#[test]
fn damage_and_another_dkek_are_told_apart() {
    let shares_of_one = shares();
    let one = Plugged::ready("WRP000020", &shares_of_one);
    one.ec_key(1, "P-256");
    let whole = wrap(&one, 1).unwrap();
    let file = WrappedKeyFile::parse(&whole).unwrap();
    let mut blob = file.key.as_bytes().to_vec();
    *blob.last_mut().unwrap() ^= 1;
    let key = hsmux_smartcard::dkek::WrappedKey::parse(&blob).unwrap();
    let damaged = WrappedKeyFile { key, ..file }.to_der();
    let twin = Plugged::ready("WRP000021", &shares_of_one);
    let error = unwrap(&twin, &damaged, 1).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert!(twin.files().is_empty());
    let alien = Plugged::ready("WRP000022", &shares());
    let error = unwrap(&alien, &whole, 1).unwrap_err();
    assert!(matches!(error, ProvisionError::OtherDkek { .. }), "{error}");
    assert!(alien.files().is_empty());
}

#[test]
fn a_key_that_is_not_there_cannot_leave() {
    let card = Plugged::ready("WRP000030", &shares());
    let error = wrap(&card, 5).unwrap_err();
    assert!(matches!(error, ProvisionError::NoKey { .. }), "{error}");
}

#[test]
fn a_key_that_counts_its_uses_stays() {
    let card = Plugged::ready("WRP000031", &shares());
    card.logged_in(|card| {
        let all = hsmux_smartcard::AesAlgorithm::ALL;
        let size = hsmux_smartcard::AesSize::Bits128;
        card.generate_aes(KeyReference(1), size, &all, Some(5))
            .unwrap();
    });
    let error = wrap(&card, 1).unwrap_err();
    assert!(
        matches!(error, ProvisionError::MayNotLeave { .. }),
        "{error}"
    );
}
