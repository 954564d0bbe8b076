//! The record of one token's PINs, while its lock is held.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hsmux_token::{Result, TokenInfo};

use super::store::{Folder, read};
use super::{Outcome, PinUser, Record, Version};
use hsmux_state::FileLock;

/// A token's record, locked by this process.
pub(crate) struct Journal {
    folder: Folder,
    path: PathBuf,
    token: TokenInfo,
    record: Record,
    _lock: FileLock,
}

impl Journal {
    /// Waits for the token's lock and reads its record.
    pub(crate) fn open(state: &Path, token: &TokenInfo) -> Result<Self> {
        let folder = Folder::open(state)?;
        let path = folder.file_of(token);
        let lock = Folder::lock(&path)?;
        let record = Record {
            manufacturer: token.manufacturer.clone(),
            model: token.model.clone(),
            serial: token.serial.clone(),
            label: token.label.clone(),
            pins: read(&path)?.map(|r| r.pins).unwrap_or_default(),
        };
        Ok(Self {
            folder,
            path,
            token: token.clone(),
            record,
            _lock: lock,
        })
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// The identifier of a PIN in the record.
    pub(crate) fn mac(&self, user: PinUser, pin: Option<&[u8]>) -> Result<String> {
        self.folder.version(&self.token, user, pin)
    }

    /// The entry of a PIN, by its MAC.
    pub(crate) fn version(&self, mac: &str) -> Option<&Version> {
        self.record.pins.iter().find(|v| v.mac == mac)
    }

    /// Whether the token accepted a PIN after the last use of another.
    pub(crate) fn is_right_since(&self, mac: &str, other: &str) -> bool {
        let pins = self.record.pins.iter();
        let mut later = pins.skip_while(|v| v.mac != other);
        later.any(|v| v.mac == mac && v.outcome == Outcome::Succeeded)
    }

    /// Records the outcome of a PIN, as the one used last.
    pub(crate) fn write(
        &mut self,
        user: PinUser,
        mac: &str,
        outcome: Outcome,
        counter_was_full: bool,
    ) -> Result<()> {
        let succeeded_before =
            outcome == Outcome::Succeeded || self.version(mac).is_some_and(|v| v.succeeded_before);
        self.put(Version {
            user,
            mac: mac.to_owned(),
            outcome,
            succeeded_before,
            counter_was_full,
            time: now(),
        })
    }

    /// Restores an entry after a call without effect.
    pub(crate) fn restore(&mut self, mac: &str, before: Option<Version>) -> Result<()> {
        self.record.pins.retain(|v| v.mac != mac);
        self.record.pins.extend(before);
        self.save()
    }

    /// Releases every held PIN; returns whether there was one.
    pub(crate) fn release(&mut self) -> Result<bool> {
        let held = self.record.pins.iter_mut().filter(|v| v.is_held());
        let released = held
            .map(|v| (v.outcome, v.time) = (Outcome::Released, now()))
            .count();
        if released > 0 {
            self.save()?;
        }
        Ok(released > 0)
    }

    fn put(&mut self, version: Version) -> Result<()> {
        self.record.pins.retain(|v| v.mac != version.mac);
        self.record.pins.push(version);
        self.save()
    }

    fn save(&self) -> Result<()> {
        Folder::write(&self.path, &self.record)
    }
}

impl Record {
    /// The token's data, from the record.
    pub(super) fn token_info(&self) -> TokenInfo {
        TokenInfo {
            manufacturer: self.manufacturer.clone(),
            model: self.model.clone(),
            serial: self.serial.clone(),
            label: self.label.clone(),
            ..TokenInfo::default()
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}
