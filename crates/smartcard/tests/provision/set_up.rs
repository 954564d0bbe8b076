//! Initialisation, PINs and the DKEK.

use hsmux_smartcard::PinStatus;
use hsmux_smartcard::dkek::{Dkek, DkekShare};
use hsmux_smartcard::provision::report::{DkekState, report, serial};
use hsmux_smartcard::provision::{ProvisionError, domain, initialise, pins};

use crate::rig::{PIN, Plugged, SO_PIN, how, secret, shares, so_pin};

#[test]
fn a_card_says_how_it_is_without_a_pin() {
    let shares = shares();
    let card = Plugged::ready("DKT000001", &shares);
    card.fill();
    let seen = report(&mut card.card(), false).unwrap();
    assert_eq!(
        (seen.serial.as_str(), seen.label.as_str()),
        ("DKT000001", "test")
    );
    assert_eq!(seen.pin, PinStatus::TriesLeft(3));
    assert!(matches!(seen.so_pin, PinStatus::TriesLeft(_)));
    let value = Dkek::from_shares(&shares).check_value();
    assert_eq!(seen.dkek, DkekState::Complete(value));
    let keys: Vec<_> = seen
        .keys
        .iter()
        .map(|key| (key.reference.0, key.label.as_str()))
        .collect();
    assert_eq!(keys, [(1, "key 1"), (2, "key 2"), (7, "key 7")]);
    assert!(seen.version.is_some());
}

#[test]
fn looking_quietly_logs_nobody_out() {
    let card = Plugged::ready("DKT000002", &shares());
    let mut user = card.card();
    user.select().unwrap();
    user.verify(&secret(PIN)).unwrap();
    assert_eq!(serial(&mut card.card()).unwrap(), "DKT000002");
    let seen = report(&mut card.card(), true).unwrap();
    assert_eq!((seen.pin, seen.version), (PinStatus::LoggedIn, None));
    assert!(user.wrap_key(hsmux_smartcard::KeyReference(1)).is_err());
    assert_eq!(
        user.pin_status(hsmux_smartcard::PinReference::User),
        Ok(PinStatus::LoggedIn)
    );
}

#[test]
fn a_blank_card_says_so() {
    let card = Plugged::blank("DKT000003");
    let seen = report(&mut card.card(), false).unwrap();
    assert_eq!(seen.pin, PinStatus::NotSet);
    let error = card.access().logged_in(|_| Ok(())).unwrap_err();
    assert!(
        matches!(error, ProvisionError::NotInitialised { .. }),
        "{error}"
    );
}

#[test]
fn a_wrong_so_pin_erases_nothing_and_costs_one_try() {
    let card = Plugged::ready("DKT000004", &shares());
    card.ec_key(1, "P-256");
    let before = report(&mut card.card(), false).unwrap();
    let mut wrong = how(None);
    wrong.so_pin = so_pin(b"0000000000000000");
    let error = initialise::initialise(&mut card.card(), &card.serial, &wrong, "x", false);
    let error = error.unwrap_err();
    assert!(
        matches!(
            error,
            ProvisionError::WrongPin {
                whose: "SO-PIN",
                ..
            }
        ),
        "{error}"
    );
    let after = report(&mut card.card(), false).unwrap();
    assert_eq!(after.keys.len(), 1);
    let (PinStatus::TriesLeft(before), PinStatus::TriesLeft(after)) = (before.so_pin, after.so_pin)
    else {
        panic!("{:?}", after.so_pin);
    };
    assert_eq!(before - after, 1);
}

#[test]
fn a_wrong_pin_is_tried_once() {
    let card = Plugged::ready("DKT000005", &shares());
    let error = card
        .access_by(card.channel(), b"000000")
        .logged_in(|_| Ok(()))
        .unwrap_err();
    assert!(
        matches!(error, ProvisionError::WrongPin { tries: 2, .. }),
        "{error}"
    );
    assert_eq!(card.tries(), PinStatus::TriesLeft(2));
}

#[test]
fn the_last_try_needs_a_word() {
    let card = Plugged::ready("DKT000006", &shares());
    let mut wrong = card.access_by(card.channel(), b"000000");
    for _ in 0..2 {
        assert!(wrong.logged_in(|_| Ok(())).is_err());
    }
    // Not even the right PIN is tried: it is unknown whether it is right.
    let error = card.access().logged_in(|_| Ok(())).unwrap_err();
    assert!(matches!(error, ProvisionError::LastTry { .. }), "{error}");
    assert_eq!(card.tries(), PinStatus::TriesLeft(1));
    let mut access = card.access();
    access.last_try = true;
    access.logged_in(|_| Ok(())).unwrap();
    assert_eq!(card.tries(), PinStatus::TriesLeft(3));
}

#[test]
fn a_blocked_pin_is_set_free_by_the_so_pin() {
    let card = Plugged::ready("DKT000007", &shares());
    let mut wrong = card.access_by(card.channel(), b"000000");
    wrong.last_try = true;
    for _ in 0..3 {
        assert!(wrong.logged_in(|_| Ok(())).is_err());
    }
    let error = card.access().logged_in(|_| Ok(())).unwrap_err();
    assert!(
        matches!(error, ProvisionError::PinBlocked { .. }),
        "{error}"
    );
    let unblock = |digits: &[u8], new: Option<&[u8]>| {
        let new = new.map(secret);
        pins::unblock(
            &mut card.card(),
            &card.serial,
            &so_pin(digits),
            new.as_ref(),
            false,
        )
    };
    let error = unblock(b"0000000000000000", None).unwrap_err();
    assert!(
        matches!(
            error,
            ProvisionError::WrongPin {
                whose: "SO-PIN",
                ..
            }
        ),
        "{error}"
    );
    unblock(SO_PIN, None).unwrap();
    card.access().logged_in(|_| Ok(())).unwrap();
    unblock(SO_PIN, Some(b"123456")).unwrap();
    card.access_by(card.channel(), b"123456")
        .logged_in(|_| Ok(()))
        .unwrap();
}

#[test]
fn a_transport_pin_is_good_for_its_change_only() {
    let card = Plugged::blank("DKT000008");
    let mut how = how(None);
    how.transport_pin = true;
    card.initialise(&how);
    let error = card.access().logged_in(|_| Ok(())).unwrap_err();
    assert!(
        matches!(error, ProvisionError::TransportPin { .. }),
        "{error}"
    );
    let (old, new) = (secret(PIN), secret(b"123456"));
    pins::change(&mut card.card(), &card.serial, &old, &new, false).unwrap();
    card.access_by(card.channel(), b"123456")
        .logged_in(|_| Ok(()))
        .unwrap();
}

#[test]
fn a_wrong_old_pin_changes_nothing() {
    let card = Plugged::ready("DKT000009", &shares());
    let (old, new) = (secret(b"000000"), secret(b"123456"));
    let error = pins::change(&mut card.card(), &card.serial, &old, &new, false).unwrap_err();
    assert!(
        matches!(error, ProvisionError::WrongPin { tries: 2, .. }),
        "{error}"
    );
    card.access().logged_in(|_| Ok(())).unwrap();
}

#[test]
fn shares_are_imported_until_the_dkek_is_complete() {
    let shares = shares();
    let card = Plugged::blank("DKT000010");
    card.initialise(&how(Some(2)));
    let import = |share: &DkekShare| domain::import_share(&mut card.card(), &card.serial, share);
    assert_eq!(import(&shares[0]).unwrap().missing, 1);
    let seen = report(&mut card.card(), false).unwrap();
    assert_eq!(seen.dkek, DkekState::Missing(1, 2));
    let complete = import(&shares[1]).unwrap();
    let value = Dkek::from_shares(&shares).check_value();
    assert_eq!((complete.missing, complete.key_check_value), (0, value.0));
    let error = import(&shares[0]).unwrap_err();
    assert!(
        matches!(error, ProvisionError::DkekComplete { .. }),
        "{error}"
    );
    assert_eq!(
        report(&mut card.card(), false).unwrap().dkek,
        DkekState::Complete(value)
    );
}

#[test]
fn a_card_without_dkek_takes_no_share() {
    let card = Plugged::blank("DKT000011");
    card.initialise(&how(None));
    assert_eq!(
        report(&mut card.card(), false).unwrap().dkek,
        DkekState::None
    );
    let error = domain::import_share(&mut card.card(), &card.serial, &DkekShare::random());
    let error = error.unwrap_err();
    assert!(
        matches!(error, ProvisionError::WithoutDkek { .. }),
        "{error}"
    );
}
