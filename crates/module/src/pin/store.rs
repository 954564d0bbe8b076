//! Files of the breaker: the folder, the key of the MACs, and a record and a lock for each token.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hmac::{Hmac, Mac};
use hsmux_state::{FileLock, LockFailed};
use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Error, Kind, Result, TokenInfo};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{PinUser, Record};

/// How long a login waits for other processes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// `pins` in the state folder.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Opens the folder; creates it if missing.
    pub(super) fn open(state: &Path) -> Result<Self> {
        let path = state.join("pins");
        hsmux_state::private_folder(&path).map_err(|e| unwritable(&path, &e))?;
        Ok(Self(path))
    }

    /// Lists all records. An unreadable file is an error, never a missing record.
    pub(super) fn list(&self) -> Result<Vec<Record>> {
        let entries = std::fs::read_dir(&self.0).map_err(|e| unwritable(&self.0, &e))?;
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| unwritable(&self.0, &e))?.path();
            if path.extension().is_some_and(|e| e == "json") {
                records.extend(read(&path)?);
            }
        }
        records.sort_by(|a, b| (&a.label, &a.serial).cmp(&(&b.label, &b.serial)));
        Ok(records)
    }

    /// The file of a token. Without a serial number the label distinguishes it.
    pub(super) fn file_of(&self, token: &TokenInfo) -> PathBuf {
        let label = if token.serial.is_empty() {
            &token.label
        } else {
            ""
        };
        let mut hash = Sha256::new();
        for part in [&token.manufacturer, &token.model, &token.serial, label] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let name = hex::encode(&hash.finalize()[..8]);
        let readable: String = token
            .serial
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(16)
            .collect();
        self.0.join(format!("{readable}-{name}.json"))
    }

    /// Waits for the token's lock.
    pub(super) fn lock(record: &Path) -> Result<FileLock> {
        let path = record.with_extension("lock");
        FileLock::take(&path, LOCK_TIMEOUT).map_err(|e| match e {
            LockFailed::Held(_) => Error::token(
                Kind::Deadline,
                format!(
                    "another process has been logging in to this token for {} s (it holds {})",
                    LOCK_TIMEOUT.as_secs(),
                    path.display()
                ),
            ),
            LockFailed::File(e) => unwritable(&path, &e),
        })
    }

    /// Replaces a record durably: after a crash it is either the old or the new one.
    pub(super) fn write(path: &Path, record: &Record) -> Result<()> {
        let text = serde_json::to_vec_pretty(record)
            .map_err(|e| unwritable(path, &std::io::Error::other(e)))?;
        hsmux_state::replace(path, &text, 0o600).map_err(|e| unwritable(path, &e))
    }

    /// The MAC of a PIN, or of the token's own PIN pad.
    pub(super) fn version(
        &self,
        token: &TokenInfo,
        user: PinUser,
        pin: Option<&[u8]>,
    ) -> Result<String> {
        let key = self.key()?;
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&key[..])
            .map_err(|e| unwritable(&self.0, &std::io::Error::other(e)))?;
        let user: &[u8] = match user {
            PinUser::User => b"user",
            PinUser::SecurityOfficer => b"so",
        };
        let way: &[u8] = if pin.is_some() { b"pin" } else { b"pad" };
        let parts = [
            token.manufacturer.as_bytes(),
            token.model.as_bytes(),
            token.serial.as_bytes(),
            user,
            way,
            pin.unwrap_or_default(),
        ];
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Ok(hex::encode(&mac.finalize().into_bytes()[..16]))
    }

    /// The random key of the MACs, created at first use. If two processes create one, the first wins.
    fn key(&self) -> Result<Zeroizing<[u8; 32]>> {
        let path = self.0.join("key");
        let get = || {
            let mut key = Zeroizing::new([0; 32]);
            match SecretReaders::Owner.read_state(&path) {
                Ok(bytes) => bytes.as_slice().read_exact(&mut key[..])?,
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    random(&mut key[..])?;
                    // Other threads, and processes of other containers with the same process id, may create one at the
                    // same time.
                    let mut name = [0; 8];
                    random(&mut name)?;
                    let draft = path.with_extension(format!("new-{}", hex::encode(name)));
                    hsmux_state::create_private(&draft, &key[..])?;
                    let linked = std::fs::hard_link(&draft, &path);
                    std::fs::remove_file(&draft)?;
                    match linked {
                        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
                        _ => hsmux_state::sync_folder(&self.0)?,
                    }
                    File::open(&path)?.read_exact(&mut key[..])?;
                }
                Err(e) => return Err(e),
            }
            Ok(key)
        };
        get().map_err(|e| unwritable(&path, &e))
    }
}

fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(bytes).map_err(|e| std::io::Error::other(e.to_string()))
}

/// Reads the record in a file, if there is one.
pub(super) fn read(path: &Path) -> Result<Option<Record>> {
    match std::fs::read(path) {
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(record) => Ok(Some(record)),
            Err(e) => Err(unwritable(path, &std::io::Error::other(e))),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unwritable(path, &e)),
    }
}

pub(super) fn unwritable(path: &Path, e: &std::io::Error) -> Error {
    Error::token(
        Kind::Environment,
        format!(
            "no login without a record of it: {}: {e}; make the state folder writable for this user",
            path.display()
        ),
    )
}
