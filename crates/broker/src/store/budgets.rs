//! Uses of GCM keys, reserved ahead in blocks: what a crash loses was never handed out.

use hsmux_token::{ObjectId, Result};
use rusqlite::{OptionalExtension, params};

use super::{Store, object_blob};

/// Most uses of a key with random nonces of 96 bits (NIST SP 800-38D, section 8.3).
pub const LIMIT: u64 = 1 << 32;

/// Uses that are reserved at once: one write for so many, and so many lost at a crash.
pub const BLOCK: u64 = 1 << 16;

impl Store {
    /// Uses that were reserved so far; the next are counted from there.
    pub fn reserved(&self, object: &ObjectId) -> Result<u64> {
        self.with(|connection| {
            let sql = "SELECT reserved FROM budgets WHERE object = ?1";
            let found: Option<i64> = connection
                .query_row(sql, [object_blob(object)], |row| row.get(0))
                .optional()?;
            Ok(found.unwrap_or(0).cast_unsigned())
        })
    }

    /// Reserves uses up to this one; on disk when it returns.
    pub fn reserve(&self, object: &ObjectId, upto: u64) -> Result<()> {
        self.write(|write| {
            write.execute(
                "INSERT INTO budgets VALUES (?1, ?2)
                 ON CONFLICT (object) DO UPDATE SET reserved = max(reserved, ?2)",
                params![object_blob(object), upto.cast_signed()],
            )
        })
    }
}
