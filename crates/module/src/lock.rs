//! Locks between processes: `flock` on a file, which ends with the process that holds it.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
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
        let deadline = Instant::now() + patience;
        let file = Self::file(path)?;
        Self::take_while(file, |_| Instant::now() < deadline)
    }

    /// The same for those who wait as a courtesy: not for one that has held it for longer than `courtesy`, and never
    /// longer than `patience`. The file's time says since when it is held.
    pub(crate) fn take_turn(path: &Path, courtesy: Duration, patience: Duration) -> Result<Self> {
        let deadline = Instant::now() + patience;
        let file = Self::file(path)?;
        let times = Unshared::make(|| file.try_clone())?;
        let is_fresh = |file: &File| {
            let since = file.metadata().and_then(|file| file.modified());
            let held = since.map_or(Duration::ZERO, |since| since.elapsed().unwrap_or_default());
            held < courtesy
        };
        let taken = Self::take_while(file, |file| Instant::now() < deadline && is_fresh(file));
        // Also whoever has passed another one: the next waits for this one. To write is enough, the file may be
        // another user's.
        times.write_all_at(b"\n", 0)?;
        taken
    }

    fn file(path: &Path) -> Result<Unshared<File>> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = Unshared::make(|| options.open(path))?;
        give_to_the_owner_of_the_folder(&file, path);
        Ok(file)
    }

    fn take_while(file: Unshared<File>, waits: impl Fn(&File) -> bool) -> Result<Self> {
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { file }),
                Err(rustix::io::Errno::WOULDBLOCK) if waits(&file) => std::thread::sleep(TURN),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn nobody_waits_for_one_that_holds_its_turn_for_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("start.lock");
        let held = FileLock::take_turn(&path, LONG, LONG).unwrap();
        let passed = FileLock::take_turn(&path, Duration::ZERO, LONG);
        assert_eq!(passed.err().unwrap().kind(), ErrorKind::WouldBlock);
        // A fresh one is waited for.
        let next = std::thread::scope(|scope| {
            let waits = scope.spawn(|| FileLock::take_turn(&path, LONG, LONG));
            drop(held);
            waits.join().unwrap()
        });
        let old = SystemTime::now() - 2 * LONG;
        next.unwrap().file.set_modified(old).unwrap();
        let free = FileLock::take_turn(&path, LONG, LONG).unwrap();
        free.file.set_modified(old).unwrap();
        assert!(FileLock::take_turn(&path, LONG, LONG).is_err());
        let touched = std::fs::metadata(&path).unwrap().modified().unwrap();
        assert!(touched > old, "the next one waits for who has passed");
    }
}
