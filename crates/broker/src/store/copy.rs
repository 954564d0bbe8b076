//! Backups: a copy of one moment, while the broker runs.

use std::fs;
use std::path::Path;

use hsmux_token::{Error, Kind, Result};
use rusqlite::Connection;

use super::{Store, failed, open};

impl Store {
    /// Copies a store into a new file, which is marked as a copy.
    pub fn backup(file: &Path, to: &Path) -> Result<()> {
        let refused = |message| Err(Error::request(Kind::Invalid, message));
        if !file.exists() {
            return refused(format!("there is no store in {}", file.display()));
        }
        if to.exists() {
            return refused(format!(
                "{} is there already; name a new file",
                to.display()
            ));
        }
        // A file with the final name is never incomplete.
        let mut part = to.as_os_str().to_owned();
        part.push(".part");
        let part = Path::new(&part);
        let copied = copied(file, part);
        let placed = copied.and_then(|()| {
            let synced = fs::File::open(part).and_then(|file| file.sync_all());
            let moved = synced.and_then(|()| fs::rename(part, to));
            moved.map_err(|e| Error::pool(Kind::Environment, format!("{}: {e}", to.display())))
        });
        placed.inspect_err(|_| drop(fs::remove_file(part)))
    }
}

fn copied(file: &Path, part: &Path) -> Result<()> {
    let source = open::connect(file).map_err(|e| failed(file, &e))?;
    let _ = fs::remove_file(part);
    let copy = source.execute("VACUUM INTO ?1", [part.to_string_lossy()]);
    copy.map_err(|e| failed(part, &e))?;
    let marked = Connection::open(part).and_then(|copy| {
        copy.pragma_update(None, "journal_mode", "DELETE")?;
        copy.execute("UPDATE origin SET stamp = NULL", [])
    });
    marked.map(drop).map_err(|e| failed(part, &e))
}
