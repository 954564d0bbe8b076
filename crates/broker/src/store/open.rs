//! Detection of restored and foreign files.
//!
//! The file and a file beside it have the same random stamp. A backup has none, and a file from elsewhere has another
//! one. Such a file lacks recent uses of GCM keys, which are then taken as used up.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hsmux_state::{FileLock, LockFailed};
use hsmux_token::{Error, Kind, Result, give_to_the_owner_of_the_folder};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::{BUSY_TIMEOUT, failed, schema};

/// The origin of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreOrigin {
    /// The file that this host has written last.
    Own,
    /// A new file; there was none before.
    New,
    /// A copy of an earlier state: budgets are used up, and no key may be deleted.
    Restored,
    /// A new file in place of a lost one: names are read from the tokens.
    Lost,
}

/// Bytes of a stamp.
const STAMP: usize = 16;

/// The wait for a command that migrates the store, on a slow disk.
const LOCKED_FOR: Duration = Duration::from_secs(60);

/// The wait for another owner.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens the file, or makes it. A damaged file needs a person's decision.
pub fn open(file: &Path) -> Result<(Connection, StoreOrigin)> {
    let failed = |e: rusqlite::Error| failed(file, &e);
    let turn = alone(file).map_err(failed)?;
    let stamps = fs::read(stamp_file(file)).ok();
    let there = file.exists();
    let mut connection = connected(file).map_err(failed)?;
    // It exists now, so no command makes it.
    drop(turn);
    look_through(&mut connection).map_err(failed)?;
    let within = own_stamp(&connection).map_err(failed)?;
    let known = |stamp: &Vec<u8>| {
        let stamps = stamps.as_deref().unwrap_or_default();
        stamps.chunks(STAMP).any(|known| known == stamp)
    };
    let origin = match (there, &stamps, &within) {
        (true, _, Some(stamp)) if known(stamp) => StoreOrigin::Own,
        (true, ..) => StoreOrigin::Restored,
        (false, None, _) => StoreOrigin::New,
        (false, Some(_), _) => StoreOrigin::Lost,
    };
    renew(&mut connection, file, origin, within).map_err(failed)?;
    Ok((connection, origin))
}

/// Opens the file for a command. If there has never been one, the command makes it with a stamp; without a stamp the
/// broker would take it for a copy with unknown uses. If only the file is missing, it was lost, and the new one gets
/// no stamp.
pub fn open_shared(file: &Path) -> rusqlite::Result<Connection> {
    let _alone = alone(file)?;
    let is_first = !file.exists() && !stamp_file(file).exists();
    let mut connection = connected(file)?;
    schema::migrate(&mut connection)?;
    if is_first {
        renew(&mut connection, file, StoreOrigin::New, None)?;
    }
    Ok(connection)
}

/// Locks the file for this broker: two brokers would not see each other's keys.
pub fn own(file: &Path) -> Result<FileLock> {
    let path = file.with_extension("owner");
    // A killed process may still be ending.
    FileLock::take(&path, LOCK_TIMEOUT).map_err(|error| {
        let why = match error {
            LockFailed::File(error) => error.to_string(),
            LockFailed::Held(_) => {
                "another broker serves from this store; give this one a [broker] store of its own"
                    .to_owned()
            }
        };
        Error::pool(Kind::Environment, format!("{}: {why}", path.display()))
    })
}

/// A connection for this process.
pub fn connect(file: &Path) -> rusqlite::Result<Connection> {
    let _alone = alone(file)?;
    connected(file)
}

/// The same for who is alone.
fn connected(file: &Path) -> rusqlite::Result<Connection> {
    // SQLite would make it with the owner of its caller, who may be root. If it cannot be made, SQLite says why.
    let mut new = File::options();
    new.append(true).create_new(true).mode(0o600);
    if let Ok(made) = new.open(file) {
        give_to_the_owner_of_the_folder(&made, file);
    }
    let connection = Connection::open(file)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// If two processes switch a new file to WAL at the same moment, SQLite refuses one of them without waiting. The
/// process that makes the file also stamps it.
fn alone(file: &Path) -> rusqlite::Result<FileLock> {
    let path = file.with_extension("lock");
    let locked = FileLock::take(&path, LOCKED_FOR);
    locked.map_err(|e| schema::other(format!("{}: {e}", path.display())))
}

/// Checks the file for damage, and migrates it.
fn look_through(connection: &mut Connection) -> rusqlite::Result<()> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(verdict)));
    }
    schema::migrate(connection)
}

fn stamp_file(file: &Path) -> PathBuf {
    file.with_extension("stamp")
}

fn own_stamp(connection: &Connection) -> rusqlite::Result<Option<Vec<u8>>> {
    let stamp = connection.query_row("SELECT stamp FROM origin", [], |row| row.get(0));
    Ok(stamp.optional()?.flatten())
}

/// A new stamp for this start, which tells copies of an earlier start. While the stamps differ, the one inside this
/// file is valid as well. A copy that a crash leaves in this state counts as a copy again.
fn renew(
    connection: &mut Connection,
    file: &Path,
    origin: StoreOrigin,
    within: Option<Vec<u8>>,
) -> rusqlite::Result<()> {
    let mut stamp = vec![0; STAMP];
    getrandom::fill(&mut stamp).map_err(|e| schema::other(format!("no random bytes: {e}")))?;
    if let Some(within) = within.filter(|_| origin == StoreOrigin::Own) {
        replace(&stamp_file(file), &[&within[..], &stamp].concat())?;
    }
    let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if origin == StoreOrigin::Restored {
        distrust(&write)?;
    }
    if matches!(origin, StoreOrigin::Restored | StoreOrigin::Lost) {
        write.execute("UPDATE origin SET uses_forgotten = 1", [])?;
    }
    write.execute("UPDATE origin SET stamp = ?1", [&stamp])?;
    write.commit()?;
    replace(&stamp_file(file), &stamp)
}

/// The time since the copy is unknown: uses of keys, keys that were about to be made, and changed settings for
/// deletion.
fn distrust(write: &Connection) -> rusqlite::Result<()> {
    let limit = super::LIMIT.cast_signed();
    write.execute("UPDATE budgets SET reserved = ?1", [limit])?;
    let missing = "INSERT OR IGNORE INTO budgets SELECT object, ?1 FROM versions";
    write.execute(missing, [limit])?;
    write.execute("UPDATE keys SET deletion_allowed = 0", [])?;
    write.execute("DELETE FROM intents", []).map(drop)
}

/// Replaces a file: a crash leaves the old one or the new one.
fn replace(file: &Path, contents: &[u8]) -> rusqlite::Result<()> {
    let hint = |e: &io::Error| match e.kind() {
        io::ErrorKind::StorageFull => "; make room on its disk",
        _ => "",
    };
    hsmux_state::replace(file, contents, 0o600)
        .map_err(|e| schema::other(format!("{}: {e}{}", file.display(), hint(&e))))
}
