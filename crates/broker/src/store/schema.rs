//! The tables, and how an older file becomes a newer one.

use rusqlite::Connection;

/// One for each version of the schema (PRAGMA user_version), in their order; what is released is not
/// changed any more.
const MIGRATIONS: &[&str] = &["
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
"];

/// Brings a file up to date; one of a newer broker is refused.
pub fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    let version =
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))?;
    let version = version as usize;
    let known = MIGRATIONS.len();
    if version > known {
        return Err(other(format!(
            "it is of a newer hsmux (version {version}; this one knows {known})"
        )));
    }
    let missing = MIGRATIONS.iter().enumerate().skip(version);
    for (at, migration) in missing {
        let version = at + 1;
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {migration} PRAGMA user_version = {version}; COMMIT;"
        ))?;
    }
    Ok(())
}

/// An error that is not SQLite's.
pub fn other(message: String) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR);
    rusqlite::Error::SqliteFailure(code, Some(message))
}
