//! The file operations that may fail while a trail is written. In a simulation its seed makes them fail.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

#[cfg(test)]
use crate::simulation;

/// Opens a file for appending, or makes it (0600).
pub fn open(path: &Path) -> io::Result<File> {
    #[cfg(test)]
    if let Some(opened) = simulation::with_disk(|disk| disk.open(path)) {
        return opened;
    }
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    options.open(path)
}

pub fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    if let Some(written) = simulation::with_disk(|disk| disk.append(file, bytes)) {
        return written;
    }
    file.write_all(bytes)
}

/// When this returns, all that was written is on disk.
pub fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if let Some(synced) = simulation::with_disk(|disk| disk.sync(file)) {
        return synced;
    }
    file.sync_data()
}

/// When this returns, the name of a new file is on disk.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    if let Some(synced) = simulation::with_disk(simulation::SimulatedDisk::sync_parent) {
        return synced;
    }
    hsmux_state::sync_parent(path)
}

pub fn truncate(file: &File, len: u64) -> io::Result<()> {
    #[cfg(test)]
    if let Some(cut) = simulation::with_disk(|disk| disk.truncate(file, len)) {
        return cut;
    }
    file.set_len(len)
}

/// Replaces a file (0600) in one step, durably.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    if let Some(replaced) = simulation::with_disk(|disk| disk.replace(path, contents)) {
        return replaced;
    }
    hsmux_state::replace(path, contents, 0o600)
}
