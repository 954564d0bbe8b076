//! Locks between processes: `flock` on a file, which ends with the process that holds it.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hsmux_token::fork::Unshared;
use hsmux_token::give_to_the_owner_of_the_folder;
use rustix::fs::{FlockOperation, flock};

/// flock(2) has no time-out: how often it is tried.
const TURN: Duration = Duration::from_millis(20);

/// A lock that is held.
pub(crate) struct FileLock {
    file: Unshared<File>,
}

impl FileLock {
    /// Waits for the lock; [`ErrorKind::WouldBlock`] when it is not free within `patience`.
    pub(crate) fn take(path: &Path, patience: Duration) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = Unshared::make(|| options.open(path))?;
        give_to_the_owner_of_the_folder(&file, path);
        let deadline = Instant::now() + patience;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { file }),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(TURN);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(ErrorKind::WouldBlock.into()),
                Err(e) => return Err(Error::from(e)),
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Explicitly: a forked child shares the open file. Closing it does the same otherwise.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}
