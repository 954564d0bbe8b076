//! The file over restarts, backups and damage.

use std::fs;

use hsmux_token::Class;

use super::*;
use crate::key::Settings;

fn object(byte: u8) -> ObjectId {
    ObjectId {
        class: Class::SECRET_KEY,
        name: [byte; 32],
    }
}

fn version(number: u32) -> VersionRow {
    VersionRow {
        number,
        created: 1_700_000_000,
        object: object(number as u8),
        mac: Some(object(200)),
        certificates: None,
    }
}

fn with_a_key(store: &Store) {
    let (name, kind) = ("orders".parse().unwrap(), "aes256-cbc".parse().unwrap());
    let settings = Settings::default();
    for number in [1, 2] {
        store
            .put_version(&name, kind, &settings, &version(number))
            .unwrap();
    }
    store.reserve(&object(1), BLOCK).unwrap();
}

#[test]
fn a_restart_finds_everything() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let store = Store::open(&file).unwrap();
    assert_eq!(store.trust(), Trust::New);
    with_a_key(&store);
    drop(store);

    let store = Store::open(&file).unwrap();
    assert_eq!(store.trust(), Trust::Own);
    let keys = store.keys().unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].kind.word(), "aes256-cbc");
    let numbers: Vec<_> = keys[0].versions.iter().map(|v| v.number).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(keys[0].versions[0].mac, Some(object(200)));
    assert_eq!(store.reserved(&object(1)).unwrap(), BLOCK);
    assert_eq!(store.reserved(&object(9)).unwrap(), 0);
}

#[test]
fn a_reservation_is_never_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("broker.sqlite")).unwrap();
    store.reserve(&object(1), 2 * BLOCK).unwrap();
    store.reserve(&object(1), BLOCK).unwrap();
    assert_eq!(store.reserved(&object(1)).unwrap(), 2 * BLOCK);
}

#[test]
fn a_backup_has_everything_but_its_budgets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let copy = folder.path().join("copy.sqlite");
    let store = Store::open(&file).unwrap();
    with_a_key(&store);
    store.backup(&copy).unwrap();
    assert!(store.backup(&copy).is_err(), "a backup is not written over");
    drop(store);

    fs::rename(&copy, &file).unwrap();
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", file.display()));
    }
    let store = Store::open(&file).unwrap();
    assert_eq!(store.trust(), Trust::Restored);
    assert_eq!(store.keys().unwrap().len(), 1);
    assert_eq!(store.reserved(&object(1)).unwrap(), LIMIT);
    drop(store);
    assert_eq!(Store::open(&file).unwrap().trust(), Trust::Own);
}

#[test]
fn a_damaged_or_lost_file_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    with_a_key(&Store::open(&file).unwrap());
    fs::write(
        &file,
        "no database at all, but long enough to be one".repeat(200),
    )
    .unwrap();
    let store = Store::open(&file).unwrap();
    assert_eq!(store.trust(), Trust::Lost);
    assert!(store.keys().unwrap().is_empty());
    drop(store);
    let aside = |name: &str| name.starts_with("broker.sqlite.damaged-");
    let mut names = fs::read_dir(folder.path()).unwrap();
    assert!(names.any(|entry| aside(&entry.unwrap().file_name().to_string_lossy())));

    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", file.display()));
    }
    assert_eq!(Store::open(&file).unwrap().trust(), Trust::Lost);
}

#[test]
fn a_newer_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let store = Store::open(&file).unwrap();
    store
        .with(|c| c.pragma_update(None, "user_version", 99))
        .unwrap();
    drop(store);
    let error = Store::open(&file).err().unwrap().to_string();
    assert!(error.contains("newer"), "{error}");
    assert!(file.exists());
}

#[test]
fn tokens_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("broker.sqlite")).unwrap();
    let token = ClientToken {
        id: "a1".into(),
        name: "billing".into(),
        created: now(),
        expires: Some(now() - 1),
        hash: [7; 32],
    };
    store.put_token(&token).unwrap();
    assert!(!token.is_valid());
    assert_eq!(store.tokens().unwrap(), [token]);
    assert_eq!(store.revoke("billing").unwrap(), 1);
    assert!(store.revoke("billing").is_err());
    assert!(store.tokens().unwrap().is_empty());
}

/// The broker starts while a command makes the first token.
#[test]
fn a_new_file_is_made_once_by_many() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("broker.sqlite");
        std::thread::scope(|scope| {
            let broker = scope.spawn(|| Store::open(&file).map(drop));
            let commands: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| Store::beside(&file)?.tokens()))
                .collect();
            broker.join().unwrap().unwrap();
            for command in commands {
                assert_eq!(command.join().unwrap().unwrap(), []);
            }
        });
    }
}
