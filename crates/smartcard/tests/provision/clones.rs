//! From one card to many.

use std::sync::atomic::{AtomicUsize, Ordering};

use hsmux_smartcard::provision::clone::{check, run};
use hsmux_smartcard::provision::{Access, ProvisionError};
use hsmux_smartcard::{CardChannel, FileKind, KeyReference, PinStatus, StatusWord};
use hsmux_vcard::{Fault, MemoryChannel, Profile};

use crate::rig::{Plugged, how, shares};

const QUIET: &(dyn Fn(hsmux_smartcard::provision::CardProgress<'_>) + Sync) = &|_| {};
/// SIGN.
const SIGN: u8 = 0x68;

fn numbers(keys: &[KeyReference]) -> Vec<u8> {
    keys.iter().map(|key| key.0).collect()
}

/// The errors of a clone to one card.
fn failures<C: CardChannel>(source: &Plugged, target: Access<C>) -> Vec<ProvisionError>
where
    MemoryChannel: Into<C>,
{
    let mut source = Access {
        card: hsmux_smartcard::Card::new(source.channel().into()),
        serial: source.serial.clone(),
        pin: crate::rig::secret(crate::rig::PIN),
        last_try: false,
    };
    let cloned = run(&mut source, &mut [target], QUIET).unwrap();
    let targets = cloned
        .targets
        .into_iter()
        .flat_map(|target| target.failures);
    cloned.failures.into_iter().chain(targets).collect()
}

#[test]
fn every_target_holds_everything_proved() {
    let shares = shares();
    let source = Plugged::ready("CLN000000", &shares);
    source.fill();
    let targets: Vec<_> = (1..=3)
        .map(|n| Plugged::ready(&format!("CLN00000{n}"), &shares))
        .collect();
    let mut accesses: Vec<_> = targets.iter().map(Plugged::access).collect();
    assert!(
        check(&mut source.access(), &mut accesses)
            .unwrap()
            .iter()
            .all(Result::is_ok)
    );
    let (calls, last) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let cloned = run(&mut source.access(), &mut accesses, &|progress| {
        assert_eq!(progress.total, 3 * (3 + 4));
        calls.fetch_add(1, Ordering::Relaxed);
        last.fetch_max(progress.done, Ordering::Relaxed);
    });
    let cloned = cloned.unwrap();
    assert!(cloned.is_whole(), "{cloned:?}");
    assert_eq!((calls.into_inner(), last.into_inner()), (21, 21));
    for (target, received) in targets.iter().zip(&cloned.targets) {
        assert_eq!(received.card, target.serial);
        assert_eq!(numbers(&received.copied), [1, 2, 7]);
        assert_eq!(received.files.len(), 4);
        assert_eq!(target.files(), source.files());
    }
    // Again: everything is there, and nothing is written.
    let again = run(&mut source.access(), &mut accesses, QUIET).unwrap();
    for received in &again.targets {
        assert_eq!(numbers(&received.present), [1, 2, 7], "{received:?}");
        assert!(received.copied.is_empty() && received.files.is_empty());
    }
}

#[test]
fn every_curve_proves_itself() {
    let shares = shares();
    let source = Plugged::ready("CLN000010", &shares);
    let target = Plugged::ready("CLN000011", &shares);
    for (number, curve) in (1..).zip(hsmux_smartcard::Curve::ALL) {
        source.ec_key(number, curve.name);
    }
    assert_eq!(failures(&source, target.access()).len(), 0);
    assert_eq!(target.files(), source.files());
}

#[test]
fn only_what_is_missing_is_copied() {
    let shares = shares();
    let source = Plugged::ready("CLN000020", &shares);
    let target = Plugged::ready("CLN000021", &shares);
    source.ec_key(1, "P-256");
    run(&mut source.access(), &mut [target.access()], QUIET).unwrap();
    source.aes_key(2);
    source.logged_in(|card| {
        let file = KeyReference(1).file(FileKind::KeyDescription);
        let mut description = card.read_file(file).unwrap().to_vec();
        // Another letter in the label.
        *description.iter_mut().find(|byte| **byte == b'k').unwrap() = b'K';
        card.replace_file(file, &description).unwrap();
    });
    let cloned = run(&mut source.access(), &mut [target.access()], QUIET).unwrap();
    let received = &cloned.targets[0];
    assert_eq!(numbers(&received.completed), [1], "{received:?}");
    assert_eq!(numbers(&received.copied), [2]);
    assert_eq!(target.files(), source.files());
}

#[test]
fn a_target_with_another_dkek_is_refused_before_anything() {
    let ours = shares();
    let source = Plugged::ready("CLN000030", &ours);
    source.ec_key(1, "P-256");
    let good = Plugged::ready("CLN000031", &ours);
    let alien = Plugged::ready("CLN000032", &shares());
    let incomplete = Plugged::blank("CLN000033");
    incomplete.initialise(&how(Some(2)));
    let without = Plugged::blank("CLN000034");
    without.initialise(&how(None));
    let blank = Plugged::blank("CLN000035");
    let cards = [&good, &alien, &incomplete, &without, &blank];
    let mut targets: Vec<_> = cards.iter().map(|card| card.access()).collect();
    let verdicts = check(&mut source.access(), &mut targets).unwrap();
    assert!(verdicts[0].is_ok());
    assert!(
        matches!(verdicts[1], Err(ProvisionError::OtherDkek { .. })),
        "{verdicts:?}"
    );
    assert!(matches!(
        verdicts[2],
        Err(ProvisionError::DkekIncomplete { missing: 2, .. })
    ));
    assert!(matches!(
        verdicts[3],
        Err(ProvisionError::WithoutDkek { .. })
    ));
    assert!(matches!(
        verdicts[4],
        Err(ProvisionError::NotInitialised { .. })
    ));
    // A caller that ignores the check meets the same refusal, and nothing is written.
    let failures = failures(&source, alien.access());
    assert!(
        matches!(failures[..], [ProvisionError::OtherDkek { .. }]),
        "{failures:?}"
    );
    assert!(alien.files().is_empty());
    assert!(check(&mut alien.access(), &mut [good.access()]).unwrap()[0].is_err());
}

#[test]
fn a_pin_that_one_card_refuses_costs_no_other_a_try() {
    let shares = shares();
    let source = Plugged::ready("CLN000040", &shares);
    source.ec_key(1, "P-256");
    let targets: Vec<_> = (1..=3)
        .map(|n| Plugged::ready(&format!("CLN00004{n}"), &shares))
        .collect();
    let wrong = |card: &Plugged| card.access_by(card.channel(), b"999999");
    let mut accesses: Vec<_> = targets.iter().map(wrong).collect();
    let cloned = run(&mut source.access(), &mut accesses, QUIET).unwrap();
    assert!(!cloned.is_whole());
    let spent = targets
        .iter()
        .filter(|card| card.tries() != PinStatus::TriesLeft(3))
        .count();
    assert_eq!(spent, 1);
    // And the source's own, before any other.
    let error = run(&mut wrong(&source), &mut accesses, QUIET).unwrap_err();
    assert!(
        matches!(error, ProvisionError::WrongPin { tries: 2, .. }),
        "{error}"
    );
    let spent = targets
        .iter()
        .filter(|card| card.tries() != PinStatus::TriesLeft(3))
        .count();
    assert_eq!(spent, 1);
}

#[test]
fn a_number_that_is_taken_is_left_alone() {
    let shares = shares();
    let source = Plugged::ready("CLN000050", &shares);
    source.ec_key(1, "P-256");
    source.aes_key(2);
    source.ec_key(3, "P-256");
    let target = Plugged::ready("CLN000051", &shares);
    target.ec_key(1, "P-256");
    target.ec_key(2, "P-256");
    let before = target.files();
    let failures = failures(&source, target.access());
    let taken =
        |error: &ProvisionError| matches!(error, ProvisionError::Taken { key, .. } if key.0 < 3);
    assert!(
        failures.len() == 2 && failures.iter().all(taken),
        "{failures:?}"
    );
    let after = target.files();
    assert!(before.iter().all(|file| after.contains(file)));
    assert!(after.contains(&source.files()[source.files().len() - 1]));
}

#[test]
fn a_copy_that_signs_wrongly_is_taken_away_again() {
    let shares = shares();
    let source = Plugged::ready("CLN000060", &shares);
    source.ec_key(1, "P-256");
    let target = Plugged::ready("CLN000061", &shares);
    target
        .control()
        .order(Fault::WrongSignature.once().on(SIGN));
    let failed = failures(&source, target.access());
    assert!(
        matches!(failed[..], [ProvisionError::NotProved { .. }]),
        "{failed:?}"
    );
    assert!(target.files().is_empty());
    assert_eq!(failures(&source, target.access()).len(), 0);
    assert_eq!(target.files(), source.files());
}

#[test]
fn a_full_card_keeps_no_half_key() {
    let shares = shares();
    let source = Plugged::ready("CLN000070", &shares);
    (1..=6).for_each(|number| source.ec_key(number, "P-256"));
    let mut kept = Vec::new();
    for capacity in [1_200, 1_600, 2_000, 2_400, 2_800] {
        let small = Plugged::of(Profile::new("CLN000071").capacity(capacity)).with(&shares);
        let failures = failures(&source, small.access());
        let full = |error: &ProvisionError| match error {
            ProvisionError::Card(error) => error.status() == Some(StatusWord::NOT_ENOUGH_MEMORY),
            _ => false,
        };
        assert!(
            failures.len() == 1 && full(&failures[0]),
            "{capacity}: {failures:?}"
        );
        let files = small.files();
        let (there, all) = (&files, source.files());
        assert!(there.iter().all(|file| all.contains(file)), "{capacity}");
        let count = |kind| {
            there
                .iter()
                .filter(|(file, _)| file.kind() == Some(kind))
                .count()
        };
        let keys = count(FileKind::Key);
        assert_eq!(
            [
                count(FileKind::Certificate),
                count(FileKind::KeyDescription)
            ],
            [keys; 2]
        );
        kept.push(keys);
    }
    assert!(kept.first() < kept.last(), "{kept:?}");
}

#[test]
fn a_key_without_public_half_is_not_copied_unproved() {
    let shares = shares();
    let source = Plugged::ready("CLN000080", &shares);
    source.ec_key(1, "P-192");
    source.rsa_key(2);
    source.ec_key(3, "brainpoolP256r1");
    source.logged_in(|card| {
        for number in [1, 2, 3] {
            card.delete_file(FileKind::Certificate.file(number))
                .unwrap();
        }
    });
    let target = Plugged::ready("CLN000081", &shares);
    let failures = failures(&source, target.access());
    // RSA signs the same each time, which allows a comparison with the original. A key on a curve shows its public
    // half and signs, but without arithmetic for the curve nothing here can verify that.
    let [ProvisionError::NoProof { key, .. }] = &failures[..] else {
        panic!("{failures:?}");
    };
    assert_eq!(key.0, 1);
    let files: Vec<_> = target.files().into_iter().map(|(file, _)| file.0).collect();
    assert_eq!(files, [0xC402, 0xC403, 0xCC02, 0xCC03]);
}

#[test]
fn a_file_with_another_content_is_left_alone() {
    let shares = shares();
    let source = Plugged::ready("CLN000090", &shares);
    let target = Plugged::ready("CLN000091", &shares);
    let file = FileKind::Data.file(1);
    source.logged_in(|card| card.write_file(file, b"new").unwrap());
    target.logged_in(|card| card.write_file(file, b"old").unwrap());
    let failures = failures(&source, target.access());
    assert!(
        matches!(failures[..], [ProvisionError::OtherContent { .. }]),
        "{failures:?}"
    );
    assert_eq!(target.files(), [(file, b"old".to_vec())]);
}
