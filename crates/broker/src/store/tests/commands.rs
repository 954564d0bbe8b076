//! Commands that open the file before the broker does, or while it does.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use super::{Store, StoreOrigin, object, remove, with_a_key};

/// A command may come before the broker's first start. A copy of the file that it makes is still a copy.
#[test]
fn what_a_command_makes_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    let copy = folder.path().join("copy.sqlite");
    drop(Store::open_shared(&file).unwrap());
    fs::copy(&file, &copy).unwrap();
    let store = Store::open(&file).unwrap();
    assert_eq!(store.origin(), StoreOrigin::Own);
    assert!(!store.forgets(&object(9)).unwrap());
    drop(store);
    // First beside the stamp of that start, then beside none.
    for _ in 0..2 {
        remove(&file);
        fs::copy(&copy, &file).unwrap();
        let store = Store::open(&file).unwrap();
        assert_eq!(store.origin(), StoreOrigin::Restored);
        assert!(store.forgets(&object(9)).unwrap());
        fs::remove_file(file.with_extension("stamp")).unwrap();
    }
}

#[test]
fn a_command_hides_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.sqlite");
    with_a_key(&Store::open(&file).unwrap());
    remove(&file);
    drop(Store::open_shared(&file).unwrap());
    let store = Store::open(&file).unwrap();
    assert_eq!(store.origin(), StoreOrigin::Restored);
    assert!(store.forgets(&object(1)).unwrap());
}

/// The broker has a user of its own, even if root calls a command first.
#[test]
fn what_a_command_makes_belongs_to_the_owner_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let other = rustix::process::geteuid().is_root().then_some(65534);
    chown(folder.path(), other, other).unwrap();
    let _store = Store::open_shared(&folder.path().join("broker.sqlite")).unwrap();
    let owner = |path: &Path| path.metadata().map(|is| (is.uid(), is.gid())).unwrap();
    let made = fs::read_dir(folder.path()).unwrap();
    let made: Vec<_> = made.map(|entry| entry.unwrap().path()).collect();
    assert!(
        made.len() >= 3,
        "the file, its lock and its stamp: {made:?}"
    );
    for path in made {
        assert_eq!(owner(&path), owner(folder.path()), "{}", path.display());
    }
}

/// The broker starts while a command makes the first token.
#[test]
fn a_new_file_is_made_once_by_many() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("broker.sqlite");
        std::thread::scope(|scope| {
            let broker = scope.spawn(|| Store::open(&file).map(|store| store.origin()));
            let commands: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| Store::open_shared(&file)?.tokens()))
                .collect();
            assert_ne!(broker.join().unwrap().unwrap(), StoreOrigin::Restored);
            for command in commands {
                assert_eq!(command.join().unwrap().unwrap(), []);
            }
        });
    }
}
