//! Where cards come from, and where they stay between two runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::{MOST, ReaderError, Readers};
use crate::{Card, Profile, Timing};

/// A folder with a file for each card, which one process at a time has; or none.
pub struct Shelf {
    /// The folder, and its lock.
    kept: Option<(PathBuf, File)>,
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
        let lock = File::create(folder.join("lock")).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => ReaderError::InUse(folder.to_owned()),
            error => failed(error.into()),
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
