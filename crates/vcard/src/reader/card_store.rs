//! Storage of cards between two runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hsmux_state::{FileLock, LockFailed};

use super::{MOST, ReaderError, Readers};
use crate::{Card, Profile, Timing};

/// A folder with a file for each card, locked for one process; or none.
pub struct CardStore {
    /// The folder, and its lock.
    locked_folder: Option<(PathBuf, FileLock)>,
}

impl CardStore {
    /// New cards, which are discarded at the end.
    pub fn none() -> Self {
        Self {
            locked_folder: None,
        }
    }

    /// Cards in a folder, which is created if missing.
    pub fn open(folder: &Path) -> Result<Self, ReaderError> {
        let failed = |source| ReaderError::io(format!("opening {}", folder.display()), source);
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = FileLock::take(&folder.join("lock"), Duration::ZERO);
        let lock = lock.map_err(|error| match error {
            LockFailed::Held(_) => ReaderError::InUse(folder.to_owned()),
            LockFailed::File(error) => failed(error),
        })?;
        Ok(Self {
            locked_folder: Some((folder.to_owned(), lock)),
        })
    }

    /// Starts this number of cards in readers; creates missing ones.
    pub fn start(&self, count: usize, timing: &Timing) -> Result<Readers, ReaderError> {
        if count > MOST {
            return Err(ReaderError::TooMany(count));
        }
        let card = |number| Ok(Card::new(self.profile(number, timing))?);
        Readers::start((0..count).map(card).collect::<Result<_, ReaderError>>()?)
    }

    fn profile(&self, number: usize, timing: &Timing) -> Profile {
        let profile = Profile::new(&format!("VCARD{number:05}")).timing(timing.clone());
        match &self.locked_folder {
            Some((folder, _)) => profile.state(folder.join(format!("card{number}.json"))),
            None => profile,
        }
    }
}
