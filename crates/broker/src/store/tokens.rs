//! Clients' tokens, stored as hashes.

use hsmux_state::Timestamp;
use hsmux_token::{Error, Kind, Result};
use rusqlite::params;

use super::Store;

/// SHA-256 of a token, which is 32 random bytes: a slow hash would add nothing.
pub type TokenHash = [u8; 32];

/// A client's token without the secret.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct ClientToken {
    /// The name for its revocation.
    pub id: String,
    /// The owner: policies name it `token:NAME`.
    pub name: String,
    /// When it was made.
    pub created: Timestamp,
    /// The end of its life; `None`: it does not expire.
    pub expires: Option<Timestamp>,
    /// The hash of the token.
    #[serde(skip)]
    pub hash: TokenHash,
}

impl ClientToken {
    /// True if it has not expired.
    pub fn is_valid(&self) -> bool {
        self.expires
            .is_none_or(|expires| Timestamp::now() < expires)
    }
}

impl Store {
    /// All tokens, the expired ones included.
    pub fn tokens(&self) -> Result<Vec<ClientToken>> {
        self.read(|connection| {
            let mut tokens =
                connection.prepare("SELECT * FROM tokens ORDER BY name, created, id")?;
            let rows = tokens.query_map([], |row| {
                Ok(ClientToken {
                    id: row.get("id")?,
                    name: row.get("name")?,
                    created: time(row.get("created")?),
                    expires: row.get::<_, Option<_>>("expires")?.map(time),
                    hash: row.get("hash")?,
                })
            })?;
            rows.collect()
        })
    }

    /// A new token.
    pub fn put_token(&self, token: &ClientToken) -> Result<()> {
        self.write(|write| {
            write.execute(
                "INSERT INTO tokens (hash, id, name, created, expires) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    token.hash,
                    token.id,
                    token.name,
                    token.created.seconds().cast_signed(),
                    token.expires.map(|at| at.seconds().cast_signed())
                ],
            )?;
            Ok(())
        })
    }

    /// Revokes the token of this id, or all of this name; returns the ids.
    pub fn revoke(&self, which: &str) -> Result<Vec<String>> {
        let sql = "DELETE FROM tokens WHERE id = ?1 OR name = ?1 RETURNING id";
        let gone: Vec<_> = self.write(|write| {
            let mut delete = write.prepare(sql)?;
            delete.query_map([which], |row| row.get(0))?.collect()
        })?;
        if gone.is_empty() {
            let message = format!(
                "there is no token of the id or name {which}; hsmux token-auth list shows all"
            );
            return Err(Error::request(Kind::Invalid, message));
        }
        Ok(gone)
    }
}

/// A column with a time.
fn time(seconds: i64) -> Timestamp {
    seconds.cast_unsigned().into()
}
