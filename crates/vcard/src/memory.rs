//! Memory that survives a power loss: committed changes persist, others are lost.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::chip::Halt;
use crate::state::PersistentState;

/// A card's non-volatile memory, written in transactions like that of a Java Card.
pub struct Memory {
    working: PersistentState,
    committed: PersistentState,
    dirty: bool,
    file: Option<PathBuf>,
    /// Remaining commits until power is lost in place of one.
    cut: Option<u32>,
}

impl Memory {
    /// A memory with this state, written to `file`, if given, from the first commit on.
    pub fn new(state: PersistentState, file: Option<PathBuf>) -> Self {
        Self {
            committed: state.clone(),
            working: state,
            dirty: true,
            file,
            cut: None,
        }
    }

    /// The state, with uncommitted changes.
    pub fn state(&self) -> &PersistentState {
        &self.working
    }

    /// The state for a change, which persists with the next [`commit`](Self::commit).
    pub fn change(&mut self) -> &mut PersistentState {
        self.dirty = true;
        &mut self.working
    }

    /// Makes the changes persistent. If there is a file, it is on disk before this returns.
    pub fn commit(&mut self) -> Result<(), Halt> {
        if !self.dirty {
            return Ok(());
        }
        match &mut self.cut {
            Some(0) => return Err(Halt::PowerLost),
            Some(steps) => *steps -= 1,
            None => {}
        }
        if let Some(file) = &self.file {
            write(file, &self.working).map_err(Halt::Memory)?;
        }
        self.committed = self.working.clone();
        self.dirty = false;
        Ok(())
    }

    /// Discards uncommitted changes.
    pub fn roll_back(&mut self) {
        if self.dirty {
            self.working = self.committed.clone();
            self.dirty = false;
        }
    }

    /// Loses power in place of the commit after `steps` more, or never.
    pub fn cut_power(&mut self, steps: Option<u32>) {
        self.cut = steps;
    }
}

/// Reads a state file; `None` if there is none.
pub fn read(file: &Path) -> io::Result<Option<PersistentState>> {
    let text = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let state: PersistentState = serde_json::from_slice(&text)?;
    if !state.readable() {
        let what = "of another version, or without a device key";
        return Err(io::Error::other(what));
    }
    Ok(Some(state))
}

fn write(file: &Path, state: &PersistentState) -> io::Result<()> {
    hsmux_state::replace(file, &serde_json::to_vec(state)?, 0o600)
}
