//! Results of a long measurement in a file that survives a crash.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Replaces the file atomically: after a crash it is the old or the new one.
pub fn replace(path: &Path, value: &impl Serialize) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let mut file = BufWriter::new(File::create(&temporary)?);
    serde_json::to_writer(&mut file, value)?;
    file.flush()?;
    file.get_ref().sync_all()?;
    fs::rename(&temporary, path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
