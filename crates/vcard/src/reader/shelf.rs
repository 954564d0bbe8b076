//! Where cards come from, and where they stay between two runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hsmux_state::{FileLock, LockFailed};

use super::{MOST, ReaderError, Readers};
use crate::{Card, Profile, Timing};

/// A folder with a file for each card, which one process at a time has; or none.
pub struct Shelf {
    /// The folder, and its lock.
    kept: Option<(PathBuf, FileLock)>,
}

impl Shelf {
    /// Cards that are new, and forgotten at the end.
    pub fn none() -> Self {
        Self { kept: None }
    }

    /// Cards that are kept in a folder, which is made where there is none.
    pub fn open(folder: &Path) -> Result<Self, ReaderError> {
        let failed = |source| ReaderError::io(format!("opening {}", folder.display()), source);
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = FileLock::take(&folder.join("lock"), Duration::ZERO);
        let lock = lock.map_err(|error| match error {
            LockFailed::Held(_) => ReaderError::InUse(folder.to_owned()),
            LockFailed::File(error) => failed(error),
        })?;
        Ok(Self {
            kept: Some((folder.to_owned(), lock)),
        })
    }

    /// Takes so many cards, makes those that are missing, and brings them up in readers.
    pub fn start(&self, count: usize, timing: &Timing) -> Result<Readers, ReaderError> {
        if count > MOST {
            return Err(ReaderError::TooMany(count));
        }
        let card = |number| Ok(Card::new(self.profile(number, timing))?);
        Readers::start((0..count).map(card).collect::<Result<_, ReaderError>>()?)
    }

    fn profile(&self, number: usize, timing: &Timing) -> Profile {
        let profile = Profile::new(&format!("VCARD{number:05}")).timing(timing.clone());
        match &self.kept {
            Some((folder, _)) => profile.state(folder.join(format!("card{number}.json"))),
            None => profile,
        }
    }
}
