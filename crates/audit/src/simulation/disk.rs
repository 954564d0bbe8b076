//! A disk that fails, and that forgets at a power cut what was not synced. The files are real ones.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hsmux_token::fake::Random;

pub struct SimulatedDisk {
    random: Random,
    pub faults: DiskFaults,
    /// The daemon dies at the operation after so many others.
    pub dies_in: Option<u64>,
    /// The daemon has died: no operation has an effect.
    pub is_dead: bool,
    files: BTreeMap<u64, FileState>,
    /// Changes of names that are not on disk yet.
    pub names: Vec<NameChange>,
    /// Files as they were opened, for the simulation.
    pub opened: Vec<File>,
    pub since_asked: DiskActivity,
    /// `TRACE` is set: operations are printed.
    is_told: bool,
}

/// What fails until it is repaired.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskFaults {
    /// The bytes that there is room for.
    pub room: Option<u64>,
    pub syncs: bool,
    pub opens: bool,
    /// Failed blocks cannot be taken back.
    pub truncations: bool,
    pub state: Option<StateFault>,
}

/// A failure to replace a file of the state folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateFault {
    /// The old file stays.
    Before,
    /// The new file is there all the same.
    After,
}

/// What the writer did with the disk in one turn.
#[derive(Clone, Copy, Default, Debug)]
pub struct DiskActivity {
    /// True if the last operation on the files of the trail failed; `None` without any.
    pub trail_failed: Option<bool>,
    /// The same of the state folder.
    pub state_failed: Option<bool>,
    /// True if something was written to the trail.
    pub wrote: bool,
}

#[derive(Default)]
struct FileState {
    /// Bytes from the beginning that are on disk.
    synced: u64,
    /// Bytes that were written and taken back since then, and their place: they may be on disk.
    taken_back: Option<(u64, Vec<u8>)>,
}

pub enum NameChange {
    Made(PathBuf),
    Renamed(PathBuf, PathBuf),
}

impl SimulatedDisk {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed ^ 0xd15c),
            faults: DiskFaults::default(),
            dies_in: None,
            is_dead: false,
            files: BTreeMap::new(),
            names: Vec::new(),
            opened: Vec::new(),
            since_asked: DiskActivity::default(),
            is_told: std::env::var_os("TRACE").is_some(),
        }
    }

    /// Bytes of this file that a power cut leaves.
    pub fn synced(&self, file: &File) -> u64 {
        self.files
            .get(&number(file))
            .map_or(0, |state| state.synced)
    }

    /// Bytes of a failed block that the file may have after the daemon's death.
    pub fn taken_back(&self, file: &File) -> &[u8] {
        let state = self.files.get(&number(file));
        let taken_back = state.and_then(|state| state.taken_back.as_ref());
        taken_back.map_or(&[], |(_, bytes)| bytes)
    }

    /// Another program renames a file, and does not sync it.
    pub fn rename(&mut self, from: &Path, to: &Path) {
        fs::rename(from, to).unwrap();
        self.names
            .push(NameChange::Renamed(from.to_owned(), to.to_owned()));
    }

    /// The machine loses its power: of the bytes and names that are not on disk, the first ones remain.
    pub fn cut_power(&mut self, files: &[File]) {
        for file in files {
            let state = self.files.entry(number(file)).or_default();
            let old = state.taken_back.take().filter(|_| self.random.one_in(2));
            if let Some((at, bytes)) = old
                && at >= state.synced
            {
                let kept = self.random.below(bytes.len() as u64 + 1);
                file.set_len(at).unwrap();
                file.write_all_at(&bytes[..kept as usize], at).unwrap();
                continue;
            }
            let unsynced = file.metadata().unwrap().len() - state.synced;
            let kept = self.random.below(unsynced + 1);
            file.set_len(state.synced + kept).unwrap();
        }
        let kept = self.random.below(self.names.len() as u64 + 1) as usize;
        for change in self.names.split_off(kept).into_iter().rev() {
            match change {
                NameChange::Made(path) => fs::remove_file(path).unwrap(),
                NameChange::Renamed(from, to) => fs::rename(to, from).unwrap(),
            }
        }
    }

    /// The machine, or the daemon alone, starts again.
    pub fn restart(&mut self, files: &[File], after_power_cut: bool) {
        self.is_dead = false;
        self.dies_in = None;
        self.opened.clear();
        // While it starts, the disk writes what was taken back. Otherwise a power cut could bring a failed block back into
        // a file that was renamed meanwhile, which no start syncs.
        self.files
            .values_mut()
            .for_each(|state| state.taken_back = None);
        if after_power_cut {
            self.names.clear();
            self.files.clear();
            for file in files {
                let synced = file.metadata().unwrap().len();
                let state = FileState {
                    synced,
                    taken_back: None,
                };
                self.files.insert(number(file), state);
            }
        }
    }

    /// No file has this number any more.
    pub fn forget(&mut self, file: &File) {
        self.files.remove(&number(file));
    }

    pub fn open(&mut self, path: &Path) -> io::Result<File> {
        let fails = self.faults.opens;
        self.operation(fails, "open")?;
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(path)?;
        if is_new {
            self.names.push(NameChange::Made(path.to_owned()));
            self.files.insert(number(&file), FileState::default());
        }
        self.opened.push(file.try_clone()?);
        Ok(file)
    }

    pub fn append(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        let mut count = bytes.len();
        if let Some(room) = &mut self.faults.room {
            count = count.min(*room as usize);
            *room -= count as u64;
        }
        let alive = self.live();
        if self.is_dead {
            count = if alive {
                self.random.below(count as u64 + 1) as usize
            } else {
                0
            };
        }
        file.write_all(&bytes[..count])?;
        self.since_asked.wrote |= count > 0;
        self.result(
            "append",
            count < bytes.len() || self.is_dead,
            ErrorKind::StorageFull,
        )
    }

    pub fn sync(&mut self, file: &File) -> io::Result<()> {
        let fails = self.faults.syncs;
        self.operation(fails, "sync")?;
        let synced = file.metadata()?.len();
        let state = FileState {
            synced,
            taken_back: None,
        };
        self.files.insert(number(file), state);
        Ok(())
    }

    pub fn sync_parent(&mut self) -> io::Result<()> {
        let fails = self.faults.syncs;
        self.operation(fails, "sync")?;
        self.names.clear();
        Ok(())
    }

    pub fn truncate(&mut self, file: &File, len: u64) -> io::Result<()> {
        if !self.live() {
            return Err(dead());
        }
        let mut bytes = vec![0; (file.metadata()?.len() - len) as usize];
        file.read_exact_at(&mut bytes, len)?;
        let state = self.files.entry(number(file)).or_default();
        state.taken_back = Some((len, bytes));
        if self.is_dead || self.faults.truncations {
            return Err(io::Error::other("the disk does not truncate"));
        }
        state.synced = state.synced.min(len);
        file.set_len(len)
    }

    pub fn replace(&mut self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let was_alive = !self.is_dead;
        let alive = self.live();
        let done = match self.faults.state {
            Some(StateFault::Before) => false,
            Some(StateFault::After) | None => alive,
        };
        // At the moment of a death either file may be there.
        if done && !self.is_dead || self.is_dead && was_alive && self.random.one_in(2) {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.open(path)?.write_all(contents)?;
        }
        self.result(
            "replace",
            self.is_dead || self.faults.state.is_some(),
            ErrorKind::PermissionDenied,
        )
    }

    /// Counts an operation that has no effect if it fails.
    fn operation(&mut self, fails: bool, what: &str) -> io::Result<()> {
        self.live();
        let failed = fails || self.is_dead;
        self.note(what, failed);
        if failed {
            return Err(io::Error::other(format!("the disk does not {what}")));
        }
        Ok(())
    }

    fn result(&mut self, what: &str, failed: bool, kind: ErrorKind) -> io::Result<()> {
        self.note(what, failed);
        if failed { Err(kind.into()) } else { Ok(()) }
    }

    fn note(&mut self, what: &str, failed: bool) {
        let activity = &mut self.since_asked;
        let last = match what {
            "replace" => &mut activity.state_failed,
            _ => &mut activity.trail_failed,
        };
        *last = Some(failed);
        if self.is_told {
            println!("       {what}{}", if failed { " fails" } else { "" });
        }
    }

    /// False if the daemon died before this operation; it may die with it.
    fn live(&mut self) -> bool {
        if self.is_dead {
            return false;
        }
        if let Some(left) = &mut self.dies_in {
            self.is_dead = *left == 0;
            *left = left.saturating_sub(1);
        }
        true
    }
}

fn dead() -> io::Error {
    io::Error::other("the daemon is dead")
}

fn number(file: &File) -> u64 {
    file.metadata().unwrap().ino()
}
