//! The files of a trail in the state folder: the signing key, and the state of the chain at the last checkpoint.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hsmux_state::{FileLock, LockFailed};
use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::chain::{Chain, Epoch, Secret};
use crate::disk;
use crate::keys::{CheckpointSigner, PublicKey, SealKey};
use crate::line::{Mac, hex_field};

/// The wait for another writer of the trail: a child that a killed daemon was about to start, or a command without a
/// daemon.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The folder `audit` (0700) of the state folder.
#[derive(Clone, Debug)]
pub struct AuditFolder(PathBuf);

/// Held by whoever writes the trail.
pub struct WriterLock(#[allow(dead_code, reason = "held, not read")] FileLock);

/// The last line of a trail.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// Its number; 0 before the first.
    pub seq: u64,
    /// Its MAC.
    #[serde(with = "hex_field")]
    pub mac: Mac,
}

/// The state of the chain at the last checkpoint.
#[derive(Serialize, Deserialize)]
pub struct SavedChain {
    v: u32,
    /// The epoch that began then.
    epoch: u64,
    #[serde(with = "secret_field")]
    secret: Secret,
    /// The checkpoint.
    #[serde(flatten)]
    pub head: Head,
    /// Its file.
    pub file: PathBuf,
    /// The offset in it of the line after the checkpoint, in bytes.
    pub offset: u64,
    /// True if the trail ended there in order.
    pub stopped: bool,
}

impl SavedChain {
    /// The state of a chain that continues at the end of a file.
    pub fn new(chain: &Chain, file: &Path, offset: u64, stopped: bool) -> Self {
        Self {
            v: 1,
            epoch: chain.epoch.number,
            secret: chain.epoch.secret.clone(),
            head: Head {
                seq: chain.seq,
                mac: chain.mac,
            },
            file: file.to_owned(),
            offset,
            stopped,
        }
    }

    /// The chain.
    pub fn chain(&self) -> Chain {
        Chain::after(self.head.seq, self.head.mac, self.epoch())
    }

    fn epoch(&self) -> Epoch {
        Epoch {
            number: self.epoch,
            secret: self.secret.clone(),
        }
    }
}

impl AuditFolder {
    /// The folder of this state folder; nothing is read or made.
    pub fn of(state: &Path) -> Self {
        Self(state.join("audit"))
    }

    /// The key that verifies this trail's checkpoints.
    pub fn public_key(&self) -> Result<PublicKey> {
        Ok(self.signer()?.ok_or_else(|| self.none())?.public())
    }

    /// The secret of now: see [`SealKey`].
    pub fn seal_key(&self) -> Result<SealKey> {
        let kept = self.load()?.ok_or_else(|| self.none())?;
        Ok(SealKey(kept.epoch()))
    }

    /// The last checkpoint, if the trail exists.
    pub fn head(&self) -> Result<Option<Head>> {
        Ok(self.load()?.map(|kept| kept.head))
    }

    /// Makes the folder, and takes the writer's lock.
    pub(crate) fn take(&self) -> Result<WriterLock> {
        hsmux_state::private_folder(&self.0).map_err(|e| self.failed(&e))?;
        match FileLock::take(&self.0.join("lock"), LOCK_TIMEOUT) {
            Ok(lock) => Ok(WriterLock(lock)),
            Err(LockFailed::File(error)) => Err(self.failed(&error)),
            Err(LockFailed::Held(_)) => {
                let folder = self.0.display();
                let message = format!("audit trail: {folder}: another process writes it now");
                Err(Error::pool(Kind::Environment, message))
            }
        }
    }

    /// The key that signs, random, made at first use.
    pub(crate) fn signer_or_new(&self) -> Result<CheckpointSigner> {
        if let Some(signer) = self.signer()? {
            return Ok(signer);
        }
        let secret = Epoch::first()?.secret;
        let text = Zeroizing::new(hex::encode(&secret[..]));
        hsmux_state::replace(&self.0.join("signing.key"), text.as_bytes(), 0o600)
            .map_err(|e| self.failed(&e))?;
        Ok(CheckpointSigner::new(&secret))
    }

    fn signer(&self) -> Result<Option<CheckpointSigner>> {
        let Some(text) = self.read("signing.key")? else {
            return Ok(None);
        };
        let mut secret = Secret::default();
        hex::decode_to_slice(text.trim_ascii(), &mut secret[..])
            .map_err(|e| self.failed(&io::Error::other(format!("signing.key: {e}"))))?;
        Ok(Some(CheckpointSigner::new(&secret)))
    }

    /// The state of the chain at the last checkpoint.
    pub(crate) fn load(&self) -> Result<Option<SavedChain>> {
        let Some(text) = self.read("head.json")? else {
            return Ok(None);
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| self.failed(&io::Error::other(format!("head.json: {e}"))))
    }

    /// Leaves the chain there, durably.
    pub(crate) fn save(&self, kept: &SavedChain) -> io::Result<()> {
        let text = Zeroizing::new(serde_json::to_vec(kept)?);
        disk::replace(&self.0.join("head.json"), &text)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.0.display())))
    }

    fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>> {
        match SecretReaders::Owner.read_state(&self.0.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed(&e)),
        }
    }

    fn none(&self) -> Error {
        let message = format!(
            "{}: no audit trail yet; it begins when the daemon starts: hsmux serve",
            self.0.display()
        );
        Error::request(Kind::Environment, message)
    }

    fn failed(&self, why: &io::Error) -> Error {
        let message = format!("audit trail: {}: {why}", self.0.display());
        Error::pool(Kind::Environment, message)
    }
}

mod secret_field {
    use serde::{Deserializer, Serializer};

    use crate::chain::Secret;
    use crate::line::hex_field;

    pub fn serialize<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
        hex_field::serialize(secret, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        hex_field::deserialize(from).map(Secret::new)
    }
}
