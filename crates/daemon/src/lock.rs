//! Makes sure that a state folder has one daemon only.

use std::path::Path;
use std::time::Duration;

use hsmux_state::{FileLock, LockFailed};
use hsmux_token::{Error, Kind, Result};

/// The longest wait for another holder of the lock: a command that only looks, or a child that a killed daemon was
/// starting.
const MOMENT: Duration = Duration::from_secs(1);

/// The lock of a running daemon. The kernel releases it when the process ends, for any reason.
#[derive(Debug)]
pub struct StateLock {
    _lock: FileLock,
}

impl StateLock {
    /// Locks the state folder, and makes it (0700) if it does not exist.
    pub fn take(state: &Path) -> Result<Self> {
        make_folder(state)?;
        let lock = FileLock::take(&state.join("daemon.lock"), MOMENT);
        let lock = lock.map_err(|error| match error {
            LockFailed::File(error) => failed(state, "cannot write to it", &error),
            LockFailed::Held(holder) => {
                let message = format!(
                    "state folder {}: the daemon with pid {holder} uses it; end that one (hsmux stop), \
                     or give this one another [daemon] state",
                    state.display(),
                );
                Error::pool(Kind::Environment, message)
            }
        })?;
        lock.name_holder(&format!("{}\n", std::process::id()));
        Ok(Self { _lock: lock })
    }

    /// True if a daemon holds the folder. An error if the caller may not look into it.
    pub fn is_held(state: &Path) -> Result<bool> {
        let held = FileLock::is_held(&state.join("daemon.lock"));
        held.map_err(|error| failed(state, "cannot see whether a daemon uses it", &error))
    }

    /// The process id of the daemon that holds the folder. `None` also if the caller may not look into it.
    pub fn holder(state: &Path) -> Option<u32> {
        let is_held = Self::is_held(state).is_ok_and(|held| held);
        let pid = is_held.then(|| std::fs::read_to_string(state.join("daemon.lock")));
        pid?.ok()?.trim().parse().ok()
    }
}

/// Makes a state folder (0700) if it does not exist.
pub fn make_folder(state: &Path) -> Result<()> {
    if state.exists() {
        return Ok(());
    }
    hsmux_state::private_folder(state).map_err(|e| failed(state, "cannot make it", &e))
}

fn failed(state: &Path, what: &str, why: &std::io::Error) -> Error {
    let message = format!("state folder {}: {what}: {why}", state.display());
    Error::pool(Kind::Environment, message)
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
        assert_eq!(StateLock::holder(&state), Some(std::process::id()));
        drop(first);
        assert_eq!(StateLock::holder(&state), None);
        assert!(!StateLock::is_held(&state).unwrap());
        assert!(!StateLock::is_held(&folder.path().join("none")).unwrap());
        StateLock::take(&state).unwrap();
    }
}
