//! Members that an administrator has parked. They are in the state folder, so they stay parked over a restart.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use hsmux_token::{Error, Kind, Result};

/// The most bytes of the record.
const LONGEST: u64 = 1 << 20;

/// Reads the parked names and their reasons. A record that cannot be read is logged and counts as empty: that the pool
/// serves is more important.
pub fn load(state: &Path) -> BTreeMap<String, String> {
    let file = file(state);
    read(&file).unwrap_or_else(|error| {
        tracing::error!(file = %file.display(), %error, "which members were parked is not known: all are connected");
        BTreeMap::new()
    })
}

/// Writes the record atomically.
pub fn save(state: &Path, parked: &BTreeMap<String, String>) -> Result<()> {
    let file = file(state);
    let failed = |error: &dyn std::fmt::Display| {
        let message = format!(
            "{}: {error}; it is done, but only until the daemon starts anew",
            file.display()
        );
        Error::pool(Kind::Environment, message)
    };
    if parked.is_empty() {
        return hsmux_state::remove(&file).map_err(|error| failed(&error));
    }
    let text = serde_json::to_vec_pretty(parked).map_err(|error| failed(&error))?;
    hsmux_state::replace(&file, &text, 0o600).map_err(|error| failed(&error))
}

fn read(file: &Path) -> std::io::Result<BTreeMap<String, String>> {
    let mut text = Vec::new();
    match File::open(file) {
        Ok(open) => open.take(LONGEST).read_to_end(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    Ok(serde_json::from_slice(&text)?)
}

fn file(state: &Path) -> PathBuf {
    state.join("parked.json")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_parked_is_read_again_and_nonsense_is_nothing() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(load(state.path()), BTreeMap::new());
        let parked = BTreeMap::from([("hsm1".to_owned(), "firmware".to_owned())]);
        save(state.path(), &parked).unwrap();
        assert_eq!(load(state.path()), parked);
        fs::write(file(state.path()), "{\"hsm1\": 1").unwrap();
        assert_eq!(load(state.path()), BTreeMap::new());
        save(state.path(), &BTreeMap::new()).unwrap();
        save(state.path(), &BTreeMap::new()).unwrap();
        assert!(!file(state.path()).exists());
    }

    #[test]
    fn a_record_of_more_than_a_mebibyte_is_not_read() {
        let state = tempfile::tempdir().unwrap();
        for (length, is_read) in [(1_048_000, true), (1_048_576, false)] {
            let parked = BTreeMap::from([("hsm1".to_owned(), "a".repeat(length))]);
            save(state.path(), &parked).unwrap();
            assert_eq!(load(state.path()) == parked, is_read, "{length}");
        }
    }
}
