//! One process at a time: `flock` on a file, which ends with the process that holds it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use hsmux_token::fork::Unshared;
use hsmux_token::give_to_the_owner_of_the_folder;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// flock(2) has no time-out: how often it is tried.
const RETRY: Duration = Duration::from_millis(20);

/// A lock that is held until it is dropped. A fork's child does not have it.
#[derive(Debug)]
pub struct FileLock {
    file: Unshared<File>,
}

/// The reason for a missing lock.
#[derive(Debug)]
pub enum LockFailed {
    /// Another process holds it. It may have written who it is.
    Held(String),
    /// The file cannot be used.
    File(io::Error),
}

impl FileLock {
    /// Waits for the lock of a file, which is created if it is not there.
    ///
    /// A process that only looks, or a child that a killed process was about to start, may hold it for a moment: wait
    /// for a second at least.
    pub fn take(path: &Path, timeout: Duration) -> Result<Self, LockFailed> {
        let deadline = Instant::now() + timeout;
        Self::take_while(Self::open(path)?, |_| Instant::now() < deadline)
    }

    /// Waits for the lock of a folder itself, which leaves no file.
    pub fn take_folder(folder: &Path, timeout: Duration) -> Result<Self, LockFailed> {
        let deadline = Instant::now() + timeout;
        let folder = Unshared::make(|| File::open(folder))?;
        Self::take_while(folder, |_| Instant::now() < deadline)
    }

    /// The same as [`Self::take`], but does not wait for a process that has held it for longer than `courtesy`, and
    /// never longer than `timeout`. The file's time says since when it is held.
    pub fn take_turn(
        path: &Path,
        courtesy: Duration,
        timeout: Duration,
    ) -> Result<Self, LockFailed> {
        let deadline = Instant::now() + timeout;
        let file = Self::open(path)?;
        let times = Unshared::make(|| file.try_clone())?;
        let is_fresh = |file: &File| {
            let since = file.metadata().and_then(|file| file.modified());
            let held = since.map_or(Duration::ZERO, |since| since.elapsed().unwrap_or_default());
            held < courtesy
        };
        let taken = Self::take_while(file, |file| Instant::now() < deadline && is_fresh(file));
        // Also if it was not free: the next process waits for this one. To write is enough, the file may be another
        // user's.
        times.write_all_at(b"\n", 0)?;
        taken
    }

    /// True if a process holds the lock of a file.
    pub fn is_held(path: &Path) -> io::Result<bool> {
        match File::open(path) {
            Ok(file) => Ok(flock(&file, FlockOperation::NonBlockingLockShared).is_err()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes for others who holds it. A full disk is no reason not to go on.
    pub fn name_holder(&self, name: &str) {
        let _ = self.file.set_len(0);
        let _ = self.file.write_all_at(name.as_bytes(), 0);
    }

    fn open(path: &Path) -> io::Result<Unshared<File>> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).mode(0o600);
        let file = Unshared::make(|| options.read(true).write(true).open(path))?;
        give_to_the_owner_of_the_folder(&file, path);
        Ok(file)
    }

    fn take_while(file: Unshared<File>, waits: impl Fn(&File) -> bool) -> Result<Self, LockFailed> {
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { file }),
                Err(Errno::WOULDBLOCK) if waits(&file) => thread::sleep(RETRY),
                Err(Errno::WOULDBLOCK) => return Err(LockFailed::Held(holder(&file))),
                Err(e) => return Err(LockFailed::File(e.into())),
            }
        }
    }
}

/// The first bytes of the file.
fn holder(file: &File) -> String {
    let mut bytes = [0; 64];
    let len = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..len]).trim().to_owned()
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Explicitly: a forked child shares the open file. Closing it does the same otherwise.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl From<io::Error> for LockFailed {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl fmt::Display for LockFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(_) => f.write_str("another process holds the lock"),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LockFailed {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    const LONG: Duration = Duration::from_secs(600);

    fn is_held(taken: Result<FileLock, LockFailed>) -> Option<String> {
        match taken {
            Err(LockFailed::Held(by)) => Some(by),
            _ => None,
        }
    }

    #[test]
    fn the_second_one_is_told_who_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        assert!(!FileLock::is_held(&path).unwrap());
        let first = FileLock::take(&path, Duration::ZERO).unwrap();
        first.name_holder("17\n");
        assert!(FileLock::is_held(&path).unwrap());
        let second = FileLock::take(&path, Duration::ZERO);
        assert_eq!(is_held(second).unwrap(), "17");
        drop(first);
        assert!(!FileLock::is_held(&path).unwrap());
        FileLock::take(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_folder_is_locked_without_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let first = FileLock::take_folder(folder.path(), Duration::ZERO).unwrap();
        is_held(FileLock::take_folder(folder.path(), Duration::ZERO)).unwrap();
        drop(first);
        FileLock::take_folder(folder.path(), Duration::ZERO).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_look_keeps_nobody_from_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        drop(FileLock::take(&path, LONG).unwrap());
        let look = File::open(&path).unwrap();
        flock(&look, FlockOperation::LockShared).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| FileLock::take(&path, LONG));
            drop(look);
            waits.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_turn_is_not_waited_for_if_it_lasts_for_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("start.lock");
        let held = FileLock::take_turn(&path, LONG, LONG).unwrap();
        is_held(FileLock::take_turn(&path, Duration::ZERO, LONG)).unwrap();
        // A fresh one is waited for.
        let next = thread::scope(|scope| {
            let waits = scope.spawn(|| FileLock::take_turn(&path, LONG, LONG));
            drop(held);
            waits.join().unwrap()
        });
        let old = SystemTime::now() - 2 * LONG;
        next.unwrap().file.set_modified(old).unwrap();
        let free = FileLock::take_turn(&path, LONG, LONG).unwrap();
        free.file.set_modified(old).unwrap();
        is_held(FileLock::take_turn(&path, LONG, LONG)).unwrap();
        let touched = std::fs::metadata(&path).unwrap().modified().unwrap();
        assert!(touched > old, "the next one waits for who has passed");
    }
}
