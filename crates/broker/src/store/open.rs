//! Whether the file is the one that was written here last.
//!
//! A random stamp stands in the file and beside it. A backup has none, and a file from elsewhere has
//! another: the uses of GCM keys since are not in it, and are taken as used up.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use hsmux_token::{Error, Kind, Result};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};

use super::{PATIENCE, failed, now, schema};

/// What the file is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// It is the file that was written here last.
    Own,
    /// It is new, and there was none.
    New,
    /// It is a copy of an earlier state: budgets are used up.
    Restored,
    /// There was one, and it is lost or damaged: names are read from the tokens.
    Lost,
}

/// Opens the file, makes it, or moves a damaged one aside.
pub fn open(file: &Path) -> Result<(Connection, Trust)> {
    let stamp = stamp_file(file);
    let before = fs::read(&stamp).ok();
    let there = file.exists();
    let (mut connection, damaged) = match sound(file) {
        Ok(connection) => (connection, false),
        Err(error) if is_damage(&error) => {
            let aside = set_aside(file)?;
            tracing::error!(
                file = %file.display(), aside = %aside.display(), %error,
                "the store is damaged and was moved aside: names are read from the tokens"
            );
            (sound(file).map_err(|e| failed(file, &e))?, true)
        }
        Err(error) => return Err(failed(file, &error)),
    };
    let within = own_stamp(&connection).map_err(|e| failed(file, &e))?;
    let trust = match (there && !damaged, before) {
        (true, before) if before.is_some() && before == within => Trust::Own,
        (true, _) => Trust::Restored,
        (false, None) if !damaged => Trust::New,
        (false, _) => Trust::Lost,
    };
    renew_stamp(&mut connection, &stamp, trust).map_err(|e| failed(file, &e))?;
    Ok((connection, trust))
}

/// A connection for this process.
pub fn connect(file: &Path) -> rusqlite::Result<Connection> {
    let _alone = alone(file)?;
    let connection = Connection::open(file)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// Of two that switch a new file to WAL at the same moment SQLite refuses one, without waiting.
fn alone(file: &Path) -> rusqlite::Result<File> {
    let path = file.with_extension("lock");
    let open = File::options().append(true).create(true).open(&path);
    let locked = open.and_then(|lock| {
        flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    });
    locked.map_err(|e| schema::other(format!("{}: {e}", path.display())))
}

/// Takes the stamp out of a backup: whatever becomes of it, it is a copy.
pub fn mark_as_copy(file: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(file)?;
    connection.execute("UPDATE origin SET stamp = NULL", [])?;
    Ok(())
}

fn sound(file: &Path) -> rusqlite::Result<Connection> {
    let mut connection = connect(file)?;
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(verdict)));
    }
    schema::migrate(&mut connection)?;
    Ok(connection)
}

fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseCorrupt | NotADatabase)
    )
}

fn set_aside(file: &Path) -> Result<PathBuf> {
    let with = |path: &Path, end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let aside = with(file, &format!(".damaged-{}", now()));
    let moved = |from: &Path, to: &Path| match fs::rename(from, to) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            let message = format!("{}: cannot be moved aside: {e}", from.display());
            Err(Error::pool(Kind::Environment, message))
        }
        _ => Ok(()),
    };
    for end in ["-wal", "-shm", ""] {
        moved(&with(file, end), &with(&aside, end))?;
    }
    Ok(aside)
}

fn stamp_file(file: &Path) -> PathBuf {
    file.with_extension("stamp")
}

fn own_stamp(connection: &Connection) -> rusqlite::Result<Option<Vec<u8>>> {
    let stamp = connection.query_row("SELECT stamp FROM origin", [], |row| row.get(0));
    Ok(stamp.optional()?.flatten())
}

/// A stamp for a file that has none of ours. After a crash in between it is a copy once more, which errs
/// on the safe side.
fn renew_stamp(connection: &mut Connection, file: &Path, trust: Trust) -> rusqlite::Result<()> {
    let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if trust == Trust::Restored {
        write.execute(
            "UPDATE budgets SET reserved = ?1",
            [super::LIMIT.cast_signed()],
        )?;
    }
    if trust != Trust::Own {
        let mut stamp = [0; 16];
        getrandom::fill(&mut stamp).map_err(|e| schema::other(format!("no random bytes: {e}")))?;
        write.execute("UPDATE origin SET stamp = ?1", [&stamp[..]])?;
        fs::write(file, stamp).map_err(|e| schema::other(format!("{}: {e}", file.display())))?;
    }
    write.commit()
}
