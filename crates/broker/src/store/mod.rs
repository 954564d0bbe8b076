//! What the broker keeps: names, versions and budgets of keys, clients' tokens. Never key material.
//!
//! | file | one idea |
//! |---|---|
//! | `schema` | the tables, and how an older file becomes a newer one |
//! | `open` | whether the file is the one that was written here last |
//! | `keys` | keys and their versions |
//! | `budgets` | uses of GCM keys, reserved ahead |
//! | `tokens` | clients' tokens, hashed |

mod budgets;
mod keys;
mod open;
mod schema;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hsmux_token::{Error, Kind, ObjectId, Result};
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode};

pub use budgets::{BLOCK, LIMIT};
pub use keys::{KeyRow, VersionRow};
pub use open::Trust;
pub use tokens::{ClientToken, TokenHash};

/// The SQLite file. Calls block: never on a thread of the runtime but by [`Store::run`].
pub struct Store {
    file: PathBuf,
    connection: Mutex<Connection>,
    trust: Trust,
}

/// How long a write waits for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

impl Store {
    /// Opens the file, which is made where it is missing, and moved aside where it is damaged.
    pub fn open(file: &Path) -> Result<Self> {
        let (connection, trust) = open::open(file)?;
        Ok(Self {
            file: file.to_owned(),
            connection: Mutex::new(connection),
            trust,
        })
    }

    /// The same for a command beside the running broker: nothing but clients' tokens is its to write.
    pub fn beside(file: &Path) -> Result<Self> {
        let mut connection = open::connect(file).map_err(|e| failed(file, &e))?;
        schema::migrate(&mut connection).map_err(|e| failed(file, &e))?;
        Ok(Self {
            file: file.to_owned(),
            connection: Mutex::new(connection),
            trust: Trust::Own,
        })
    }

    /// What the file is worth.
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// Does something with the store on a thread that may block.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        what: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || what(&store)).await;
        done.map_err(|e| Error::pool(Kind::Environment, format!("the store: {e}")))?
    }

    /// A copy as of one moment, while the store is in use. Whoever opens the copy is told that it is one.
    pub fn backup(&self, to: &Path) -> Result<()> {
        if to.exists() {
            let message = format!("{} is there already; name a new file", to.display());
            return Err(Error::request(Kind::Invalid, message));
        }
        self.with(|connection| connection.execute("VACUUM INTO ?1", [to.to_string_lossy()]))?;
        open::mark_as_copy(to).map_err(|e| failed(to, &e))
    }

    /// Grows with every change by another process.
    pub fn foreign_version(&self) -> Result<i64> {
        self.with(|connection| {
            connection.pragma_query_value(None, "data_version", |row| row.get(0))
        })
    }

    fn with<T>(&self, what: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T> {
        what(&mut self.connection.lock()).map_err(|e| failed(&self.file, &e))
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
            "; restart the broker, which moves it aside and reads the names from the tokens"
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

/// An object's name as the tables have it: the class, one byte, and 32 bytes.
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
