//! Files that are written whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use hsmux_token::give_to_the_owner_of_the_folder;

use crate::folder::sync_parent;

/// Replaces a file of hsmux's own folder in one step, durably: a crash leaves the old file or the new one, and perhaps
/// `NAME.new`, which the next call overwrites. The new file has this mode. If root writes it, it belongs to the owner of
/// the folder.
///
/// Two writers at once need a lock.
pub fn replace(path: &Path, contents: &[u8], mode: u32) -> Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    remove(&draft)?;
    write_new(&draft, contents, mode, |file| {
        give_to_the_owner_of_the_folder(file, &draft);
        Ok(())
    })?;
    rename(&draft, path)
}

/// The same in a folder in which people and other programs also write: its draft is `.NAME.PID`.
pub fn replace_among_others(path: &Path, contents: &[u8], mode: u32) -> Result<()> {
    let draft = draft_among_others(path);
    remove(&draft)?;
    write_new(&draft, contents, mode, |_| Ok(()))?;
    rename(&draft, path)
}

/// Replaces a file as [`replace_among_others`] does. The new file has the owner, the group and the mode of `model`, which
/// may be the same file.
pub fn replace_like(path: &Path, contents: &[u8], model: &Path) -> Result<()> {
    let draft = draft_among_others(path);
    let old = fs::metadata(model)?;
    remove(&draft)?;
    write_new(&draft, contents, 0o600, |file| {
        let new = file.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            fchown(file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(old.mode() & 0o777))
    })?;
    rename(&draft, path)
}

/// Writes a file that must not be there yet, durably. It belongs to the caller. After an error it is not there.
pub fn create_new(path: &Path, contents: &[u8], mode: u32) -> Result<()> {
    write_new(path, contents, mode, |_| Ok(()))?;
    sync_parent(path)
}

/// The same for a file of the state folder that only its owner may read. If root writes it, it belongs to the owner of
/// the folder.
pub fn create_private(path: &Path, contents: &[u8]) -> Result<()> {
    write_new(path, contents, 0o600, |file| {
        give_to_the_owner_of_the_folder(file, path);
        Ok(())
    })?;
    sync_parent(path)
}

/// Opens a file to read and write it. A new one is readable by its owner only.
pub fn open_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(path)?;
    give_to_the_owner_of_the_folder(&file, path);
    Ok(file)
}

/// Removes a file, if it is there.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// A name that no other process takes while this one lives.
fn draft_among_others(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

fn write_new(
    path: &Path,
    contents: &[u8],
    mode: u32,
    give: impl FnOnce(&File) -> Result<()>,
) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    let written = give(&file)
        .and_then(|()| file.write_all(contents))
        .and_then(|()| file.sync_all());
    // Half a file is none.
    written.inspect_err(|_| drop(fs::remove_file(path)))
}

fn rename(draft: &Path, path: &Path) -> Result<()> {
    fs::rename(draft, path).inspect_err(|_| drop(fs::remove_file(draft)))?;
    sync_parent(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_whatever_a_crash_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        replace(&path, b"one", 0o600).unwrap();
        // The draft of an earlier crash, longer, and readable by all.
        fs::write(folder.path().join("record.json.new"), "longer than it").unwrap();
        replace(&path, b"two", 0o640).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(mode(&path), 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_replacement_that_fails_leaves_the_old_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"text", 0o600).is_err());
        assert!(replace_like(&path, b"text", &folder.path().join("none")).is_err());
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(path.is_dir());
    }

    #[test]
    fn drafts_of_others_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [path, others] = ["list.pem", "list.pem.new"].map(|name| folder.path().join(name));
        for file in [&path, &others] {
            fs::write(file, "old").unwrap();
        }
        replace_among_others(&path, b"one", 0o644).unwrap();
        replace_like(&path, b"two", &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read(&others).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_new_file_never_overwrites_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        create_new(&path, b"key", 0o600).unwrap();
        let error = create_new(&path, b"other", 0o644).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"key");
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn a_replacement_looks_like_the_file_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hsmux.toml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
        let other = rustix::process::geteuid().is_root().then_some(65534);
        std::os::unix::fs::chown(&path, other, other).unwrap();
        let before = fs::metadata(&path).unwrap();
        replace_like(&path, b"new", &path).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let looks = |it: &fs::Metadata| (it.uid(), it.gid(), it.mode());
        assert_eq!(looks(&before), looks(&after));
        assert_ne!(before.ino(), after.ino());
    }
}
