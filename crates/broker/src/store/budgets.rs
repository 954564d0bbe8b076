//! Uses of GCM keys, reserved in blocks: a crash loses only unused ones.

use std::ops::Range;

use hsmux_token::{ObjectId, Result};
use rusqlite::{Connection, OptionalExtension, params};

use super::{Store, object_blob};

/// The limit of uses of a key with random nonces of 96 bits (NIST SP 800-38D, section 8.3).
pub const LIMIT: u64 = 1 << 32;

/// The size of a block: one write for so many uses, and so many lost in a crash.
pub const BLOCK: u64 = 1 << 16;

impl Store {
    /// The uses reserved so far.
    pub fn reserved(&self, object: &ObjectId) -> Result<u64> {
        self.read(|connection| reserved(connection, object))
    }

    /// Reserves the next uses exclusively; they are on disk when it returns. `None`: the budget is used up.
    pub fn reserve(&self, object: &ObjectId) -> Result<Option<Range<u64>>> {
        self.write(|write| {
            let from = reserved(write, object)?;
            if from >= LIMIT {
                return Ok(None);
            }
            let upto = (from + BLOCK).min(LIMIT);
            put(write, object, upto)?;
            Ok(Some(from..upto))
        })
    }

    /// True if uses of this key may be missing from the store after a restore. A managed key's uses are taken as used
    /// up when it is adopted.
    pub fn forgets(&self, object: &ObjectId) -> Result<bool> {
        let sql = "SELECT uses_forgotten AND NOT EXISTS (SELECT 1 FROM budgets WHERE object = ?1) FROM origin";
        self.read(|connection| connection.query_row(sql, [object_blob(object)], |row| row.get(0)))
    }

    /// The number of uses is unknown: the key enciphers no more.
    pub fn exhaust(&self, object: &ObjectId) -> Result<()> {
        self.write(|write| put(write, object, LIMIT))
    }
}

fn reserved(connection: &Connection, object: &ObjectId) -> rusqlite::Result<u64> {
    let sql = "SELECT reserved FROM budgets WHERE object = ?1";
    let found: Option<i64> = connection
        .query_row(sql, [object_blob(object)], |row| row.get(0))
        .optional()?;
    Ok(found.unwrap_or(0).cast_unsigned())
}

fn put(connection: &Connection, object: &ObjectId, upto: u64) -> rusqlite::Result<()> {
    let sql =
        "INSERT INTO budgets VALUES (?1, ?2) ON CONFLICT (object) DO UPDATE SET reserved = ?2";
    connection.execute(sql, params![object_blob(object), upto.cast_signed()])?;
    Ok(())
}
