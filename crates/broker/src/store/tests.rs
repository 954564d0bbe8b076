//! The file over restarts, backups and damage.

mod commands;

use std::fs;

use hsmux_token::Class;

use super::*;
use crate::key::KeySettings;

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
    let settings = KeySettings::default();
    for number in [1, 2] {
        store
            .put_version(&name, kind, &settings, &version(number), &[])
            .unwrap();
    }
    store.reserve(&object(1)).unwrap();
}

#[test]
fn a_restart_finds_everything() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let store = Store::open(&file).unwrap();
    assert_eq!(store.origin(), StoreOrigin::New);
    with_a_key(&store);
    drop(store);

    let store = Store::open(&file).unwrap();
    assert_eq!(store.origin(), StoreOrigin::Own);
    let keys = store.keys().unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].kind.word(), "aes256-cbc");
    let numbers: Vec<_> = keys[0].versions.iter().map(|v| v.number).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(keys[0].versions[0].mac, Some(object(200)));
    assert_eq!(store.reserved(&object(1)).unwrap(), BLOCK);
    assert_eq!(store.reserved(&object(9)).unwrap(), 0);
    assert!(!store.forgets(&object(9)).unwrap());
}

#[test]
fn no_use_is_reserved_twice_and_none_beyond_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("broker.sqlite")).unwrap();
    assert_eq!(store.reserve(&object(1)).unwrap(), Some(0..BLOCK));
    assert_eq!(store.reserve(&object(1)).unwrap(), Some(BLOCK..2 * BLOCK));
    store.exhaust(&object(1)).unwrap();
    assert_eq!(store.reserve(&object(1)).unwrap(), None);
    assert_eq!(store.reserved(&object(1)).unwrap(), LIMIT);
}

fn remove(file: &Path) {
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", file.display()));
    }
}

/// The file counts as a copy: no use is repeated that may have happened since, and no key is deleted.
fn is_distrusted(store: &Store) {
    assert_eq!(store.origin(), StoreOrigin::Restored);
    let keys = store.keys().unwrap();
    assert_eq!(keys.len(), 1);
    assert!(!keys[0].settings.deletion_allowed);
    assert!(!store.intends(b"made since").unwrap());
    for number in [1, 2] {
        assert_eq!(store.reserve(&object(number)).unwrap(), None);
        assert!(!store.forgets(&object(number)).unwrap());
    }
    assert!(store.forgets(&object(9)).unwrap(), "a key of others");
}

fn with_a_key_to_delete(store: &Store) {
    with_a_key(store);
    let (name, kind) = ("orders".parse().unwrap(), "aes256-cbc".parse().unwrap());
    let settings = KeySettings {
        deletion_allowed: true,
        ..KeySettings::default()
    };
    store.put_key(&name, kind, &settings).unwrap();
    store.intend(b"made since").unwrap();
}

#[test]
fn a_backup_has_everything_but_what_may_be_done() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let copy = folder.path().join("copy.sqlite");
    let missing = Store::backup(&file, &copy).unwrap_err().to_string();
    assert!(missing.contains("no store") && !file.exists(), "{missing}");
    let store = Store::open(&file).unwrap();
    with_a_key_to_delete(&store);
    Store::backup(&file, &copy).unwrap();
    let twice = Store::backup(&file, &copy).unwrap_err().to_string();
    assert!(twice.contains("name a new file"), "{twice}");
    drop(store);

    remove(&file);
    fs::rename(&copy, &file).unwrap();
    is_distrusted(&Store::open(&file).unwrap());
    assert_eq!(Store::open(&file).unwrap().origin(), StoreOrigin::Own);
    let left = fs::read_dir(folder.path()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name());
    assert!(
        !left
            .into_iter()
            .any(|name| name.to_string_lossy().contains("part"))
    );
}

/// `cp` knows nothing of backups.
#[test]
fn a_copy_of_before_the_last_start_is_known_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let copy = folder.path().join("copy.sqlite");
    with_a_key_to_delete(&Store::open(&file).unwrap());
    fs::copy(&file, &copy).unwrap();
    assert_eq!(Store::open(&file).unwrap().origin(), StoreOrigin::Own);
    remove(&file);
    fs::rename(&copy, &file).unwrap();
    is_distrusted(&Store::open(&file).unwrap());
}

/// An interrupted start leaves the file in a state that the next start accepts.
#[test]
fn both_stamps_are_good_while_they_differ() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    drop(Store::open(&file).unwrap());
    let stamp = fs::read(file.with_extension("stamp")).unwrap();
    for both in [
        [&stamp[..], &[7; 16]].concat(),
        [&[7; 16], &stamp[..]].concat(),
    ] {
        fs::write(file.with_extension("stamp"), both).unwrap();
        let store = Store::open(&file).unwrap();
        assert_eq!(store.origin(), StoreOrigin::Own);
        drop(store);
        let now = fs::read(file.with_extension("stamp")).unwrap();
        let other = if now.len() == 16 {
            now
        } else {
            panic!("{now:?}")
        };
        assert_ne!(other, stamp);
        fs::write(file.with_extension("stamp"), &other).unwrap();
        let connection = open::connect(&file).unwrap();
        connection
            .execute("UPDATE origin SET stamp = ?1", [&stamp])
            .unwrap();
    }
}

#[test]
fn a_damaged_file_is_refused_and_a_lost_one_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    with_a_key(&Store::open(&file).unwrap());
    let damage = "no database at all, but long enough to be one".repeat(200);
    fs::write(&file, &damage).unwrap();
    let refusals = [
        Store::open(&file).err().unwrap(),
        Store::open_shared(&file).err().unwrap(),
        Store::backup(&file, &folder.path().join("copy")).unwrap_err(),
    ];
    for refusal in refusals.map(|refusal| refusal.to_string()) {
        assert!(refusal.contains("broker.sqlite"), "{refusal}");
        assert!(refusal.contains("move it away"), "{refusal}");
    }
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        damage,
        "nobody touches it"
    );

    fs::rename(&file, folder.path().join("damaged")).unwrap();
    let store = Store::open(&file).unwrap();
    assert_eq!(store.origin(), StoreOrigin::Lost);
    assert!(store.keys().unwrap().is_empty());
    drop(store);
    let later = Store::open(&file).unwrap();
    assert!(later.forgets(&object(1)).unwrap());
}

#[test]
fn a_page_that_is_damaged_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    with_a_key(&Store::open(&file).unwrap());
    let mut bytes = fs::read(&file).unwrap();
    let pages = bytes.len() / 4096;
    assert!(pages > 4, "{pages} pages");
    bytes[3 * 4096..4 * 4096].fill(0xA5);
    fs::write(&file, bytes).unwrap();
    let refusal = Store::open(&file).err().unwrap().to_string();
    assert!(refusal.contains("move it away"), "{refusal}");
}

#[test]
fn nobody_else_serves_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let store = Store::open(&file).unwrap();
    let refusal = Store::open(&file).err().unwrap().to_string();
    assert!(refusal.contains("another broker"), "{refusal}");
    Store::open_shared(&file).unwrap();
    drop(store);
    Store::open(&file).unwrap();
}

/// A file of version 1 of the schema, with a key in use.
#[test]
fn an_older_file_becomes_a_newer_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let old = Connection::open(&file).unwrap();
    old.execute_batch(schema::MIGRATIONS[0]).unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    let blobs = [object_blob(&object(1)), object_blob(&object(200))];
    old.execute(
        "INSERT INTO keys VALUES ('orders', 'aes256-cbc', 1, 1, 0, 0)",
        [],
    )
    .unwrap();
    let sql = "INSERT INTO versions VALUES ('orders', 1, 1700000000, ?1, ?2, NULL)";
    old.execute(sql, [&blobs[0], &blobs[1]]).unwrap();
    let sql = "INSERT INTO budgets VALUES (?1, 65536)";
    old.execute(sql, [&blobs[0]]).unwrap();
    old.execute("UPDATE origin SET stamp = ?1", [[3; 16]])
        .unwrap();
    fs::write(file.with_extension("stamp"), [3; 16]).unwrap();
    drop(old);

    let store = Store::open(&file).unwrap();
    assert_eq!(store.origin(), StoreOrigin::Own);
    let keys = store.keys().unwrap();
    assert_eq!(keys[0].name.as_str(), "orders");
    assert!(keys[0].settings.deletion_allowed);
    assert_eq!(keys[0].versions[0].mac, Some(object(200)));
    assert_eq!(store.reserve(&object(1)).unwrap(), Some(BLOCK..2 * BLOCK));
    store.doom(&[object(1)]).unwrap();
    assert_eq!(store.doomed().unwrap(), [object(1)]);
    store.gone(&object(1)).unwrap();
    assert_eq!(store.doomed().unwrap(), []);
}

#[test]
fn what_is_deleted_is_to_go_from_the_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let store = Store::open(&file).unwrap();
    with_a_key(&store);
    let (name, kind) = ("orders".parse().unwrap(), "aes256-cbc".parse().unwrap());
    let settings = KeySettings {
        min_available: 2,
        ..KeySettings::default()
    };
    store.trim(&name, kind, &settings, &[object(1)]).unwrap();
    assert_eq!(store.keys().unwrap()[0].versions.len(), 1);
    store.remove_key(&name, &[object(2)]).unwrap();
    assert!(store.keys().unwrap().is_empty());
    drop(store);
    let doomed = Store::open(&file).unwrap().doomed().unwrap();
    assert_eq!(doomed, [object(1), object(2)]);
}

/// Another writing program delays writers for a bounded time, and no reader.
#[test]
fn a_locked_file_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let store = Store::open(&file).unwrap();
    with_a_key(&store);
    let mut other = Connection::open(&file).unwrap();
    let held = other
        .transaction_with_behavior(TransactionBehavior::Exclusive)
        .unwrap();
    let refusal = store.reserve(&object(1)).unwrap_err().to_string();
    assert!(
        refusal.contains("broker.sqlite") && refusal.contains("another program"),
        "{refusal}"
    );
    assert_eq!(store.keys().unwrap().len(), 1);
    drop(held);
    store.reserve(&object(1)).unwrap();
}

#[test]
fn a_newer_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let store = Store::open(&file).unwrap();
    store
        .write(|write| write.pragma_update(None, "user_version", 99))
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
        created: now().into(),
        expires: Some((now() - 1).into()),
        hash: [7; 32],
    };
    store.put_token(&token).unwrap();
    assert!(!token.is_valid());
    assert_eq!(store.tokens().unwrap(), [token]);
    assert_eq!(store.revoke("billing").unwrap().len(), 1);
    assert!(store.revoke("billing").is_err());
    assert!(store.tokens().unwrap().is_empty());
}
