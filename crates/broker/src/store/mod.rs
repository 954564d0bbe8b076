//! The broker's database: names, versions and budgets of keys, and clients' tokens. It never has key material.
//!
//! | file | one idea |
//! |---|---|
//! | `schema` | the tables, and how an older file becomes a newer one |
//! | `open` | whether the file is the one that was written here last |
//! | `copy` | backups |
//! | `keys` | keys and their versions |
//! | `pending` | intents that a crash may leave half done |
//! | `budgets` | uses of GCM keys, reserved ahead |
//! | `tokens` | clients' tokens, hashed |

mod budgets;
mod copy;
mod keys;
mod open;
mod pending;
mod schema;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hsmux_state::FileLock;
use hsmux_state::FileVersions;
use hsmux_token::{Error, Kind, ObjectId, Result};
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

pub use budgets::{BLOCK, LIMIT};
pub use keys::{KeyRow, VersionRow};
pub use open::StoreOrigin;
pub use tokens::{ClientToken, TokenHash};

use crate::traces;

/// The SQLite file. Calls block: on a thread of the runtime only through [`Store::run`].
pub struct Store {
    file: PathBuf,
    /// In WAL mode a reader waits for no writer.
    reading: Mutex<Connection>,
    writing: Mutex<Connection>,
    origin: StoreOrigin,
    /// The lock that keeps other brokers from this file.
    _owner: Option<FileLock>,
}

/// The time that a write waits for another one, of any process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

impl Store {
    /// Opens the file for the one broker that serves from it. A missing file is made; a damaged one is refused.
    pub fn open(file: &Path) -> Result<Self> {
        let owner = open::own(file)?;
        let (writing, origin) = open::open(file)?;
        Self::over(file, writing, origin, Some(owner))
    }

    /// Opens it for a command beside the running broker: a command writes only clients' tokens.
    pub fn open_shared(file: &Path) -> Result<Self> {
        let writing = open::open_shared(file).map_err(|e| failed(file, &e))?;
        Self::over(file, writing, StoreOrigin::Own, None)
    }

    fn over(
        file: &Path,
        writing: Connection,
        origin: StoreOrigin,
        owner: Option<FileLock>,
    ) -> Result<Self> {
        let reading = open::connect(file).map_err(|e| failed(file, &e))?;
        Ok(Self {
            file: file.to_owned(),
            reading: Mutex::new(reading),
            writing: Mutex::new(writing),
            origin,
            _owner: owner,
        })
    }

    /// The origin of the file when it was opened.
    pub fn origin(&self) -> StoreOrigin {
        self.origin
    }

    /// Runs work with the store on a thread that may block.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        what: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _timed = traces::span("store");
        let store = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || what(&store)).await;
        done.map_err(|e| Error::pool(Kind::Environment, format!("the store: {e}")))?
    }

    /// Grows with every change through another connection.
    pub fn foreign_version(&self) -> Result<i64> {
        self.read(|connection| {
            connection.pragma_query_value(None, "data_version", |row| row.get(0))
        })
    }

    fn read<T>(&self, what: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.with(&self.reading, |connection| what(connection))
    }

    /// A transaction: all of it or nothing, on disk when it returns.
    fn write<T>(&self, what: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T> {
        self.with(&self.writing, |connection| {
            let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = what(&write)?;
            write.commit()?;
            Ok(done)
        })
    }

    /// Changes with every write to its files, by any process.
    pub fn stamp(&self) -> FileVersions {
        let mut log = self.file.clone().into_os_string();
        log.push("-wal");
        FileVersions::of([&*self.file, Path::new(&log)])
    }

    fn with<T>(
        &self,
        connection: &Mutex<Connection>,
        what: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let busy = || {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            rusqlite::Error::SqliteFailure(code, None)
        };
        let mut connection = connection
            .try_lock_for(BUSY_TIMEOUT)
            .ok_or_else(|| failed(&self.file, &busy()))?;
        what(&mut connection).map_err(|e| failed(&self.file, &e))
    }
}

/// SQLite's error with the file and what to do.
fn failed(file: &Path, error: &rusqlite::Error) -> Error {
    let hint = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "; another program holds it: end that program, or try again"
        }
        Some(ErrorCode::DiskFull) => "; make room on its disk",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => "; the broker has to write to it",
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "; it is damaged: put a backup in its place, or move it away, and start the broker again: \
             what a backup lacks is read from the tokens, no key may be deleted and of a key without a \
             backup only the latest version decrypts until that is allowed anew, and GCM keys only \
             decrypt until they are rotated"
        }
        _ => "",
    };
    let message = format!("{}: {error}{hint}", file.display());
    Error::pool(Kind::Environment, message)
}

/// Seconds after 1970.
pub fn now() -> u64 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| since.as_secs())
}

/// The stored form of an object's name: the class, one byte, and 32 bytes.
fn object_blob(id: &ObjectId) -> Vec<u8> {
    let mut blob = vec![id.class.0 as u8];
    blob.extend(id.name);
    blob
}

fn object_of_blob(blob: &[u8]) -> rusqlite::Result<ObjectId> {
    let wrong =
        || rusqlite::Error::InvalidColumnType(0, "object".into(), rusqlite::types::Type::Blob);
    let (class, name) = blob.split_first().ok_or_else(wrong)?;
    Ok(ObjectId {
        class: hsmux_token::Class(u64::from(*class)),
        name: name.try_into().map_err(|_| wrong())?,
    })
}

#[cfg(test)]
mod tests;
