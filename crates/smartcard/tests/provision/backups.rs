//! A whole card in a file.

use hsmux_smartcard::provision::{Backup, ProvisionError};
use hsmux_smartcard::{FileId, FileKind};

use crate::rig::{Plugged, shares};

#[test]
fn a_card_comes_back_from_its_backup() {
    let shares = shares();
    let old = Plugged::ready("BKP000000", &shares);
    old.fill();
    let bytes = Backup::take(&mut old.access(), true, &|_| {})
        .unwrap()
        .encode()
        .unwrap();
    let backup = Backup::parse(&bytes).unwrap();
    assert_eq!(
        (backup.serial.as_str(), backup.label.as_str()),
        ("BKP000000", "test")
    );
    let new = Plugged::ready("BKP000001", &shares);
    let received = backup.restore(&mut new.access(), &|_| {}).unwrap();
    assert!(
        received.failures.is_empty() && received.copied.len() == 3,
        "{received:?}"
    );
    assert_eq!(new.files(), old.files());
    let again = backup.restore(&mut new.access(), &|_| {}).unwrap();
    assert_eq!((again.copied.len(), again.present.len()), (0, 3));
}

#[test]
fn data_that_need_the_pin_stay_on_the_card() {
    let shares = shares();
    let old = Plugged::ready("BKP000010", &shares);
    old.fill();
    let backup = Backup::take(&mut old.access(), false, &|_| {}).unwrap();
    let bytes = backup.encode().unwrap();
    assert!(!bytes.windows(8).any(|part| part == b"for some"));
    let new = Plugged::ready("BKP000011", &shares);
    backup.restore(&mut new.access(), &|_| {}).unwrap();
    let protected = |file: &(FileId, Vec<u8>)| file.0.kind() == Some(FileKind::ProtectedData);
    let mut expected = old.files();
    expected.retain(|file| !protected(file));
    assert_eq!(new.files(), expected);
}

#[test]
fn a_card_with_another_dkek_is_refused() {
    let old = Plugged::ready("BKP000020", &shares());
    old.ec_key(1, "P-256");
    let backup = Backup::take(&mut old.access(), false, &|_| {}).unwrap();
    let other = Plugged::ready("BKP000021", &shares());
    let error = backup.restore(&mut other.access(), &|_| {}).unwrap_err();
    assert!(matches!(error, ProvisionError::OtherDkek { .. }), "{error}");
    assert!(other.files().is_empty());
}

#[test]
fn a_damaged_backup_is_told_from_a_good_one() {
    let old = Plugged::ready("BKP000030", &shares());
    old.ec_key(1, "P-256");
    let backup = Backup::take(&mut old.access(), false, &|_| {}).unwrap();
    let bytes = backup.encode().unwrap();
    for length in 0..bytes.len() {
        assert!(Backup::parse(&bytes[..length]).is_err(), "{length}");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(Backup::parse(&damaged).is_err(), "byte {at}");
    }
}
