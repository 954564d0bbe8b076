//! Files of an authority: written as a whole or not at all. Secret files are readable by their owner alone, and never
//! overwritten.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hsmux_state::FileLock;
use hsmux_token::{Error, Kind, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// The wait for another command that changes the authority's files.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Permissions of a private key.
pub const PRIVATE: u32 = 0o600;

/// Permissions of what everybody may know.
pub const PUBLIC: u32 = 0o644;

/// A folder that appears with all its files, or not at all.
pub struct NewFolder(PathBuf);

impl NewFolder {
    /// Prepares a folder for this name.
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
        let file = self.0.join(name);
        hsmux_state::create_new(&file, text, mode).map_err(|e| failed(&file, &e))
    }

    /// Gives it its name, which must be free; [`sync_parent`] has to follow.
    pub fn settle(self, folder: &Path) -> Result<()> {
        let settled = renameat_with(CWD, &self.0, CWD, folder, RenameFlags::NOREPLACE);
        settled.map_err(|e| failed(folder, &e))
    }
}

impl Drop for NewFolder {
    /// Removes the folder, unless it has got its final name.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Takes the lock of an authority's folder; waits while another process has it.
pub fn lock(folder: &Path) -> Result<FileLock> {
    FileLock::take_folder(folder, LOCK_TIMEOUT).map_err(|e| failed(folder, &e))
}

/// Reads a file.
pub fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).map_err(|e| failed(file, &e))
}

/// Replaces a file that everybody may read.
pub fn replace(file: &Path, text: &[u8]) -> Result<()> {
    hsmux_state::replace_among_others(file, text, PUBLIC).map_err(|e| failed(file, &e))
}

/// Makes a rename survive a power loss.
pub fn sync_parent(file: &Path) -> Result<()> {
    hsmux_state::sync_parent(file).map_err(|e| failed(file, &e))
}

/// An error about a file.
pub fn failed(file: &Path, error: &dyn std::fmt::Display) -> Error {
    let message = format!("{}: {error}", file.display());
    Error::request(Kind::Environment, message)
}
