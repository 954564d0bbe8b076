//! Intents that a crash may leave half done on the tokens: keys to be made, and keys to be destroyed.

use hsmux_token::{ObjectId, Result};
use rusqlite::{Connection, params};

use super::{Store, now, object_blob, object_of_blob};

/// A key marked for deletion that was not seen on any token for so long, in seconds, is gone.
const FORGOTTEN: u64 = 90 * 24 * 3600;

impl Store {
    /// A key is about to be made with this CKA_ID. After a crash the CKA_ID shows that it was made here and never
    /// used.
    pub fn intend(&self, id: &[u8]) -> Result<()> {
        self.write(|write| {
            let sql = "INSERT OR IGNORE INTO intents VALUES (?1)";
            write.execute(sql, [id]).map(drop)
        })
    }

    /// True if that was intended and is not done.
    pub fn intends(&self, id: &[u8]) -> Result<bool> {
        let sql = "SELECT 1 FROM intents WHERE id = ?1";
        self.read(|connection| connection.prepare(sql)?.exists([id]))
    }

    /// Withdraws the intent.
    pub fn forget(&self, ids: &[Vec<u8>]) -> Result<()> {
        self.write(|write| forget(write, ids))
    }

    /// Marks these objects for deletion, whenever a token shows them.
    pub fn doom(&self, objects: &[ObjectId]) -> Result<()> {
        self.write(|write| doom(write, objects))
    }

    /// The objects that are still to be destroyed.
    pub fn doomed(&self) -> Result<Vec<ObjectId>> {
        self.read(|connection| {
            let mut doomed = connection.prepare("SELECT object FROM doomed")?;
            let rows = doomed.query_map([], |row| object_of_blob(&row.get::<_, Vec<u8>>(0)?))?;
            rows.collect()
        })
    }

    /// Notes that one of these was seen and could not be destroyed.
    pub fn still_there(&self, object: &ObjectId) -> Result<()> {
        self.write(|write| {
            let sql = "UPDATE doomed SET since = ?2 WHERE object = ?1";
            let row = params![object_blob(object), now().cast_signed()];
            write.execute(sql, row).map(drop)
        })
    }

    /// An object that is gone.
    pub fn gone(&self, object: &ObjectId) -> Result<()> {
        self.write(|write| {
            let sql = "DELETE FROM doomed WHERE object = ?1";
            write.execute(sql, [object_blob(object)]).map(drop)
        })
    }
}

pub(super) fn forget(write: &Connection, ids: &[Vec<u8>]) -> rusqlite::Result<()> {
    let mut delete = write.prepare("DELETE FROM intents WHERE id = ?1")?;
    ids.iter().try_for_each(|id| delete.execute([id]).map(drop))
}

pub(super) fn doom(write: &Connection, objects: &[ObjectId]) -> rusqlite::Result<()> {
    let now = now();
    let old = now.saturating_sub(FORGOTTEN).cast_signed();
    write.execute("DELETE FROM doomed WHERE since < ?1", [old])?;
    let mut insert = write.prepare("INSERT OR IGNORE INTO doomed VALUES (?1, ?2)")?;
    objects.iter().try_for_each(|object| {
        insert
            .execute(params![object_blob(object), now.cast_signed()])
            .map(drop)
    })
}
