//! Keys and their versions.

use hsmux_token::{ObjectId, Result};
use rusqlite::{Row, Transaction, params};

use super::{Store, object_blob, object_of_blob, pending};
use crate::key::{KeyName, KeySettings, KeyType};

/// A key in the store.
pub struct KeyRow {
    /// Its name.
    pub name: KeyName,
    /// Its type.
    pub kind: KeyType,
    /// The owner's settings.
    pub settings: KeySettings,
    /// In their order.
    pub versions: Vec<VersionRow>,
}

/// A version in the store.
#[derive(Clone)]
pub struct VersionRow {
    /// From 1.
    pub number: u32,
    /// Seconds after 1970.
    pub created: u64,
    /// The secret or private key.
    pub object: ObjectId,
    /// The key that authenticates, where there is one.
    pub mac: Option<ObjectId>,
    /// PEM.
    pub certificates: Option<String>,
}

impl Store {
    /// All keys. A key of an unknown name or type is left out, with a warning.
    pub fn keys(&self) -> Result<Vec<KeyRow>> {
        self.read(|connection| {
            let mut keys = connection.prepare("SELECT * FROM keys ORDER BY name")?;
            let mut versions =
                connection.prepare("SELECT * FROM versions WHERE key = ?1 ORDER BY number")?;
            let rows: Vec<_> = keys.query_map([], key)?.collect::<rusqlite::Result<_>>()?;
            let mut known = Vec::new();
            for (name, read) in rows {
                let Some(mut row) = read else {
                    tracing::error!(
                        name,
                        "the store has a key of a name or type that is not known"
                    );
                    continue;
                };
                let of_key = versions.query_map([&name], version)?;
                row.versions = of_key.collect::<rusqlite::Result<_>>()?;
                known.push(row);
            }
            Ok(known)
        })
    }

    /// Stores a key or its settings; its versions stay.
    pub fn put_key(&self, name: &KeyName, kind: KeyType, settings: &KeySettings) -> Result<()> {
        self.write(|write| put_key(write, name, kind, settings))
    }

    /// Stores a version, and its key if that is new; `made` is no longer intended.
    pub fn put_version(
        &self,
        name: &KeyName,
        kind: KeyType,
        settings: &KeySettings,
        version: &VersionRow,
        made: &[Vec<u8>],
    ) -> Result<()> {
        self.write(|write| {
            put_key(write, name, kind, settings)?;
            write.execute(
                "INSERT OR REPLACE INTO versions VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    name.as_str(),
                    version.number,
                    version.created.cast_signed(),
                    object_blob(&version.object),
                    version.mac.as_ref().map(object_blob),
                    version.certificates,
                ],
            )?;
            pending::forget(write, made)
        })
    }

    /// Removes versions below the first of these settings, and marks these objects of theirs for deletion.
    pub fn trim(
        &self,
        name: &KeyName,
        kind: KeyType,
        settings: &KeySettings,
        objects: &[ObjectId],
    ) -> Result<()> {
        self.write(|write| {
            put_key(write, name, kind, settings)?;
            let sql = "DELETE FROM versions WHERE key = ?1 AND number < ?2";
            write.execute(sql, params![name.as_str(), settings.min_available])?;
            pending::doom(write, objects)
        })
    }

    /// Deletes a key with all its versions, and marks these objects of theirs for deletion.
    pub fn remove_key(&self, name: &KeyName, objects: &[ObjectId]) -> Result<()> {
        self.write(|write| {
            write.execute("DELETE FROM keys WHERE name = ?1", [name.as_str()])?;
            pending::doom(write, objects)
        })
    }
}

fn put_key(
    write: &Transaction<'_>,
    name: &KeyName,
    kind: KeyType,
    settings: &KeySettings,
) -> rusqlite::Result<()> {
    write.execute(
        "INSERT INTO keys VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (name) DO UPDATE SET
         deletion_allowed = ?3, min_decryption = ?4, min_encryption = ?5, min_available = ?6",
        params![
            name.as_str(),
            kind.word(),
            settings.deletion_allowed,
            settings.min_decryption,
            settings.min_encryption,
            settings.min_available,
        ],
    )?;
    Ok(())
}

fn key(row: &Row<'_>) -> rusqlite::Result<(String, Option<KeyRow>)> {
    let text: String = row.get("name")?;
    let kind: String = row.get("kind")?;
    let settings = KeySettings {
        deletion_allowed: row.get("deletion_allowed")?,
        min_decryption: row.get("min_decryption")?,
        min_encryption: row.get("min_encryption")?,
        min_available: row.get("min_available")?,
    };
    let known = text.parse().ok().zip(kind.parse().ok());
    let read = known.map(|(name, kind)| KeyRow {
        name,
        kind,
        settings,
        versions: Vec::new(),
    });
    Ok((text, read))
}

fn version(row: &Row<'_>) -> rusqlite::Result<VersionRow> {
    let mac: Option<Vec<u8>> = row.get("mac")?;
    Ok(VersionRow {
        number: row.get("number")?,
        created: row.get::<_, i64>("created")?.cast_unsigned(),
        object: object_of_blob(&row.get::<_, Vec<u8>>("object")?)?,
        mac: mac.map(|blob| object_of_blob(&blob)).transpose()?,
        certificates: row.get("certificates")?,
    })
}
