//! Memory that survives a power loss: what is committed stays, what is not was never there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::chip::Halt;
use crate::state::State;

/// A card's non-volatile memory, written in transactions as a Java Card does.
pub struct Memory {
    working: State,
    committed: State,
    dirty: bool,
    file: Option<PathBuf>,
    /// Power goes off in place of this commit, counted down.
    cut: Option<u32>,
}

impl Memory {
    /// With a state that is written to `file`, if there is one, at the first commit.
    pub fn new(state: State, file: Option<PathBuf>) -> Self {
        Self {
            committed: state.clone(),
            working: state,
            dirty: true,
            file,
            cut: None,
        }
    }

    /// What the card knows, uncommitted changes included.
    pub fn state(&self) -> &State {
        &self.working
    }

    /// For a change, which lasts from the next [`commit`](Self::commit) on.
    pub fn change(&mut self) -> &mut State {
        self.dirty = true;
        &mut self.working
    }

    /// Makes the changes last: on disk, where there is a file, before this returns.
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

    /// Forgets what was not committed.
    pub fn roll_back(&mut self) {
        if self.dirty {
            self.working = self.committed.clone();
            self.dirty = false;
        }
    }

    /// Lets the power go off in place of the commit after `steps` more, or never.
    pub fn cut_power(&mut self, steps: Option<u32>) {
        self.cut = steps;
    }
}

/// Reads a state file; `None` if there is none.
pub fn read(file: &Path) -> io::Result<Option<State>> {
    let text = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let state: State = serde_json::from_slice(&text)?;
    if !state.readable() {
        let what = "of another version, or without a device key";
        return Err(io::Error::other(what));
    }
    Ok(Some(state))
}

fn write(file: &Path, state: &State) -> io::Result<()> {
    hsmux_state::replace(file, &serde_json::to_vec(state)?, 0o600)
}
