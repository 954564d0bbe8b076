//! Files that come from outside: shares, custodians' parts, wrapped keys, backups. Whatever is in them, they are read
//! or refused.

use std::sync::LazyLock;

use hsmux_smartcard::dkek::custodian::{PasswordShare, combine, split};
use hsmux_smartcard::dkek::{
    Dkek, DkekShare, KeyMaterial, ShareFile, WrappedKey, WrappedKeyFile, WrappedKind,
};
use hsmux_smartcard::provision::{Backup, KeyPackage, package};
use hsmux_smartcard::{KeyReference, PinStatus};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::rig::{Plugged, shares};

/// The shares of a domain, and all that a card of it has to give.
static CONTENT: LazyLock<(Vec<DkekShare>, Backup)> = LazyLock::new(|| {
    let shares = shares();
    let card = Plugged::ready("FILES0000", &shares);
    card.fill();
    let backup = Backup::take(&mut card.access(), true, &|_| {}).unwrap();
    (shares, backup)
});

const DIGEST: usize = 32;

/// Bytes with some of them others, and perhaps an end that comes early.
fn damaged(whole: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<Index>(), any::<u8>()), 1..4);
    (changes, proptest::option::of(any::<Index>())).prop_map(move |(changes, end)| {
        let mut bytes = whole.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(end) = end {
            bytes.truncate(end.index(bytes.len()));
        }
        bytes
    })
}

fn dkek() -> Dkek {
    Dkek::from_shares(&CONTENT.0)
}

fn key_files() -> impl Strategy<Value = Vec<u8>> {
    let files = CONTENT.1.keys.iter().map(|key| key.to_file().to_der());
    select(files.collect::<Vec<_>>()).prop_flat_map(damaged)
}

/// A backup's own digest fits whatever is in it.
fn sealed(mut content: Vec<u8>) -> Vec<u8> {
    let digest = Sha256::digest(&content);
    content.extend_from_slice(&digest);
    content
}

fn backups() -> impl Strategy<Value = Vec<u8>> {
    let mut content = CONTENT.1.encode().unwrap();
    content.truncate(content.len() - DIGEST);
    let head = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let head = content[..head].to_vec();
    let anything = vec(any::<u8>(), 0..200).prop_map(move |body| [&head[..], &body].concat());
    prop_oneof![3 => damaged(content), 1 => anything].prop_map(sealed)
}

/// The three lines of a custodian, and lines that are nearly these.
fn part() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<u64>().prop_map(|number| format!("{number:x}")),
        select(vec![
            "0",
            "1",
            "2",
            "3",
            "7",
            "ffffffffffffffc5",
            "d",
            "",
            "-1",
            "1:",
            "\u{e9}"
        ])
        .prop_map(str::to_owned),
    ];
    let name = select(vec![
        "Prime",
        "Share ID",
        "Share value",
        "Prime       ",
        "Note",
        "",
    ]);
    let line = (name, number).prop_map(|(name, number)| format!("{name}: {number}\n"));
    vec(line, 0..6).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn share_files(bytes in vec(any::<u8>(), 0..80), salted in any::<bool>()) {
        let bytes = if salted { [b"Salted__", &bytes[..]].concat() } else { bytes };
        if let Ok(file) = ShareFile::parse(&bytes) {
            prop_assert_eq!(file.as_bytes(), bytes);
        }
    }

    #[test]
    fn parts_of_custodians(texts in vec(part(), 1..4)) {
        let parts = texts.iter().filter_map(|text| text.parse::<PasswordShare>().ok());
        let parts: Vec<_> = parts.collect();
        for part in &parts {
            prop_assert_eq!(&part.to_text().parse::<PasswordShare>().unwrap().to_text(), &part.to_text());
        }
        let _ = combine(&parts);
    }

    /// Numbers that are in range, and were never those of one password.
    #[test]
    fn parts_that_were_never_together(ids in vec(1..300_u64, 1..6), values in vec(any::<u64>(), 6)) {
        let (_, whole) = split(2, 3).unwrap();
        let text = whole[0].to_text();
        let prime = text.lines().next().unwrap().split_once(':').unwrap().1.to_owned();
        let part = |(id, value): (&u64, &u64)| {
            PasswordShare::new(&prime, &id.to_string(), &format!("{value:x}")).ok()
        };
        let parts: Vec<_> = ids.iter().zip(&values).filter_map(part).collect();
        let _ = combine(&parts);
    }

    #[test]
    fn wrapped_keys(bytes in prop_oneof![vec(any::<u8>(), 0..200), key_files()]) {
        let dkek = dkek();
        let opened = WrappedKey::parse(&bytes).and_then(|key| key.open(&dkek));
        prop_assert!(opened.is_err());
        if let Ok(file) = WrappedKeyFile::parse(&bytes) {
            let again = WrappedKeyFile::parse(&file.to_der()).unwrap();
            prop_assert_eq!(&again.key, &file.key);
            let _ = file.key.open(&dkek);
        }
    }

    /// An owner of the DKEK can seal any content.
    #[test]
    fn sealed_nonsense(
        kind in select(vec![WrappedKind::Rsa, WrappedKind::RsaCrt, WrappedKind::Ec, WrappedKind::Aes]),
        value in vec(any::<u8>(), 0..40),
        allowed in vec(any::<u8>(), 0..4),
    ) {
        let values = kind.fields().iter().map(|_| Zeroizing::new(value.clone())).collect();
        let sealed = WrappedKey::seal(&KeyMaterial::new(kind, values).unwrap(), &allowed, &dkek()).unwrap();
        prop_assert_eq!(WrappedKey::parse(sealed.as_bytes()).unwrap(), sealed.clone());
        prop_assert_eq!(sealed.open(&dkek()).unwrap().kind(), kind);
        let file = WrappedKeyFile { key: sealed, description: None, certificate: None };
        prop_assert_eq!(WrappedKeyFile::parse(&file.to_der()).unwrap(), file);
    }

    #[test]
    fn backups_are_read_or_refused(bytes in backups()) {
        if let Ok(backup) = Backup::parse(&bytes) {
            prop_assert_eq!(Backup::parse(&backup.encode().unwrap()).unwrap(), backup);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is in the files, the card goes on to be one, and no try of its PIN is gone.
    #[test]
    fn a_card_survives_what_is_restored(bytes in backups(), key in key_files()) {
        let card = Plugged::ready("FILES0001", &CONTENT.0);
        if let Ok(backup) = Backup::parse(&bytes) {
            let _ = backup.restore(&mut card.access(), &|_| {});
        }
        if let Ok(file) = WrappedKeyFile::parse(&key) {
            let package = KeyPackage::from_file(file, KeyReference(9));
            let _ = package::unwrap(&mut card.access(), &package);
        }
        prop_assert_eq!(card.tries(), PinStatus::TriesLeft(3));
    }
}
