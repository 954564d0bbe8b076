//! Files of an authority: written whole or not at all; what is secret is its owner's alone, and never written
//! over.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hsmux_token::{Error, Kind, Result};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

/// Permissions of a private key.
pub const PRIVATE: u32 = 0o600;

/// Permissions of what everybody may know.
pub const PUBLIC: u32 = 0o644;

/// A folder that appears with all its files, or not at all.
pub struct NewFolder(PathBuf);

impl NewFolder {
    /// Prepares one that is to have this name.
    pub fn beside(folder: &Path) -> Result<Self> {
        if folder.exists() {
            let message = format!("{}: is there already, and stays", folder.display());
            return Err(Error::request(Kind::Invalid, message));
        }
        let mut name = folder.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let new = folder.with_file_name(name);
        let made = DirBuilder::new().mode(0o700).create(&new);
        made.map_err(|e| failed(folder, &e))?;
        Ok(Self(new))
    }

    /// Writes one of its files.
    pub fn write(&self, name: &str, text: &[u8], mode: u32) -> Result<()> {
        write(&self.0.join(name), text, mode)
    }

    /// Gives it its name, which nothing else may have by now; [`sync_parent`] is to follow.
    pub fn settle(self, folder: &Path) -> Result<()> {
        let settled = renameat_with(CWD, &self.0, CWD, folder, RenameFlags::NOREPLACE);
        settled.map_err(|e| failed(folder, &e))
    }
}

impl Drop for NewFolder {
    /// What has its name is not there under this one any more.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One writer at a time.
pub struct Lock(#[expect(dead_code, reason = "held")] File);

impl Lock {
    /// Waits for it.
    pub fn take(folder: &Path) -> Result<Self> {
        let lock = File::open(folder).map_err(|e| failed(folder, &e))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|e| failed(folder, &e))?;
        Ok(Self(lock))
    }
}

/// Reads a file.
pub fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).map_err(|e| failed(file, &e))
}

/// Other contents for a file that everybody may read.
pub fn replace(file: &Path, text: &[u8]) -> Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = file.with_file_name(name);
    let replaced = write(&new, text, PUBLIC)
        .and_then(|()| fs::rename(&new, file).map_err(|e| failed(file, &e)));
    replaced.inspect_err(|_| drop(fs::remove_file(&new)))?;
    sync_parent(file)
}

fn write(file: &Path, text: &[u8], mode: u32) -> Result<()> {
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(file);
    let written = opened.and_then(|mut file| {
        file.write_all(text)?;
        file.sync_all()
    });
    written.map_err(|e| failed(file, &e))
}

/// What was renamed has its new name after a power loss, too.
pub fn sync_parent(file: &Path) -> Result<()> {
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let synced = File::open(parent).and_then(|folder| folder.sync_all());
    synced.map_err(|e| failed(parent, &e))
}

/// An error about a file.
pub fn failed(file: &Path, error: &dyn std::fmt::Display) -> Error {
    let message = format!("{}: {error}", file.display());
    Error::request(Kind::Environment, message)
}
