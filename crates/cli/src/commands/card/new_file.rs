//! Files that must not be lost, and that nobody else should read.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context as _;

/// Writes a new file, readable by its owner only; one that is there already stays as it is.
pub fn write(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    let new = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    let mut new = new.with_context(|| format!("{}: not written", file.display()))?;
    let written = new.write_all(content).and_then(|()| new.sync_all());
    if written.is_err() {
        // Half a file is none.
        let _ = std::fs::remove_file(file);
    }
    written.with_context(|| format!("{}: not written", file.display()))
}
