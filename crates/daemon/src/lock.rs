//! One daemon for one state folder.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Kind, Result};
use rustix::fs::{FlockOperation, flock};

/// How long another holder of the lock is waited for.
const MOMENT: Duration = Duration::from_secs(1);

/// Between two attempts.
const TURN: Duration = Duration::from_millis(20);

/// Held for as long as the daemon runs; the kernel lets it go when the process ends, however that is.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes the state folder, which is made (0700) if it is not there.
    pub fn take(state: &Path) -> Result<Self> {
        make_folder(state)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(state.join("daemon.lock"))
            .map_err(|e| failed(state, "cannot write to it", &e))?;
        if !locked(&file) {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let message = format!(
                "state folder {}: the daemon with pid {} uses it; stop that one first, \
                 or give this one another [daemon] state",
                state.display(),
                holder.trim(),
            );
            return Err(Error::pool(Kind::Environment, message));
        }
        // For the message above only, so that a full disk is no reason not to start.
        let _ = file.set_len(0);
        let _ = file.write_all(format!("{}\n", std::process::id()).as_bytes());
        Ok(Self { _file: file })
    }

    /// Whether a daemon holds the folder; an error to whoever may not look into it.
    pub fn is_held(state: &Path) -> Result<bool> {
        match File::open(state.join("daemon.lock")) {
            Ok(file) => Ok(flock(&file, FlockOperation::NonBlockingLockShared).is_err()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => {
                let what = "cannot see whether a daemon uses it";
                Err(failed(state, what, &error))
            }
        }
    }
}

/// Makes a state folder (0700) if it is not there.
pub fn make_folder(state: &Path) -> Result<()> {
    if state.exists() {
        return Ok(());
    }
    let made = DirBuilder::new().mode(0o700).recursive(true).create(state);
    made.map_err(|e| failed(state, "cannot make it", &e))
}

fn failed(state: &Path, what: &str, why: &std::io::Error) -> Error {
    let message = format!("state folder {}: {what}: {why}", state.display());
    Error::pool(Kind::Environment, message)
}

/// Locks the file for this process, unless it is held for longer than a moment: that long by who only
/// looks, and by a child that a killed daemon was about to start.
fn locked(file: &File) -> bool {
    let deadline = Instant::now() + MOMENT;
    loop {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(TURN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_refused_and_told_by_whom() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let first = StateLock::take(&state).unwrap();
        let error = StateLock::take(&state).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        assert!(StateLock::is_held(&state).unwrap());
        drop(first);
        assert!(!StateLock::is_held(&state).unwrap());
        assert!(!StateLock::is_held(&folder.path().join("none")).unwrap());
        StateLock::take(&state).unwrap();
    }

    #[test]
    fn who_only_looks_keeps_no_daemon_from_its_start() {
        let folder = tempfile::tempdir().unwrap();
        drop(StateLock::take(folder.path()).unwrap());
        let look = File::open(folder.path().join("daemon.lock")).unwrap();
        flock(&look, FlockOperation::LockShared).unwrap();
        let looking = thread::spawn(move || {
            thread::sleep(TURN);
            drop(look);
        });
        StateLock::take(folder.path()).unwrap();
        looking.join().unwrap();
    }
}
