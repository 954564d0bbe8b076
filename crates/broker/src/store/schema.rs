//! The tables, and the migration of older files.

use rusqlite::{Connection, TransactionBehavior};

/// One for each version of the schema (PRAGMA user_version), in order; released ones never change.
pub(super) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE keys (
        name TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        deletion_allowed INTEGER NOT NULL,
        min_decryption INTEGER NOT NULL,
        min_encryption INTEGER NOT NULL,
        min_available INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE versions (
        key TEXT NOT NULL REFERENCES keys (name) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        created INTEGER NOT NULL,
        object BLOB NOT NULL,
        mac BLOB,
        certificates TEXT,
        PRIMARY KEY (key, number)
    ) STRICT;
    CREATE TABLE budgets (
        object BLOB PRIMARY KEY,
        reserved INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE intents (
        id BLOB PRIMARY KEY
    ) STRICT;
    CREATE TABLE tokens (
        hash BLOB PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        created INTEGER NOT NULL,
        expires INTEGER
    ) STRICT;
    CREATE TABLE origin (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        stamp BLOB
    ) STRICT;
    INSERT INTO origin VALUES (1, NULL);
",
    "
    CREATE TABLE doomed (
        object BLOB PRIMARY KEY,
        since INTEGER NOT NULL
    ) STRICT;
",
    "
    ALTER TABLE origin ADD COLUMN uses_forgotten INTEGER NOT NULL DEFAULT 0;
",
];

/// Migrates a file to the current version; a file of a newer broker is refused. Another process may do the same.
pub fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    if missing(connection)?.is_empty() {
        return Ok(());
    }
    let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in missing(&write)? {
        write.execute_batch(migration)?;
    }
    write.pragma_update(None, "user_version", MIGRATIONS.len())?;
    write.commit()
}

/// The migrations that the file lacks.
fn missing(connection: &Connection) -> rusqlite::Result<&'static [&'static str]> {
    let version: usize = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    MIGRATIONS.get(version..).ok_or_else(|| {
        let known = MIGRATIONS.len();
        other(format!(
            "it is of a newer hsmux (version {version}; this one knows {known})"
        ))
    })
}

/// An error that is not SQLite's.
pub fn other(message: String) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR);
    rusqlite::Error::SqliteFailure(code, Some(message))
}
