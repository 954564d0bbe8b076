//! The journal of changes: a file of JSON lines, in the state folder, with one writer.
//!
//! A change is written down before the first member is touched. The next start decides the changes that a crash has
//! left open, from the lines alone: a change that enough members had done is finished, any other is undone. A member
//! that is away *owes* its part of that.

mod debts;
mod maps;
mod record;
mod state;

pub(super) use record::{Intent, JournalRecord, MemberPart};
pub(super) use state::{Debtor, JournalState};

use hsmux_state::{FileLock, LockFailed, failed};
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Disk space reserved before a change starts, so that the change can be written to its end.
const RESERVE: u64 = 256 * 1024;
/// A journal is compacted when this many lines follow its snapshot.
const COMPACT_AFTER: usize = 2_000;
/// A journal that is no longer is written anew whenever keys in it are of no use any more; a longer one when it has
/// doubled, or when that is asked for.
const SHORT: u64 = 64 * 1024;

/// An open journal.
pub(super) struct Journal {
    path: PathBuf,
    writer: Mutex<JournalWriter>,
    /// Held for as long as the journal is open: another writer is refused.
    _lock: FileLock,
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.drop_keys(true);
    }
}

struct JournalWriter {
    file: File,
    len: u64,
    lines: usize,
    /// How long it was when it was last written anew.
    base: u64,
    state: JournalState,
    /// Changes that were finished by their lines, until the pool is told.
    finished: Vec<Intent>,
    /// Lines that come before the next one.
    unwritten: Vec<u8>,
}

/// When a record has to be on the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncPolicy {
    /// Before the change goes on.
    Now,
    /// The next record that has to takes it along; lost, it only makes a restart undo.
    Later,
}

impl Journal {
    /// Opens or makes `journal.jsonl` in the folder, and decides what was left open. Waits so long
    /// for another process that writes.
    pub fn open(folder: &Path, patience: Duration) -> Result<Self> {
        hsmux_state::private_folder(folder).map_err(|e| failed("create", folder, &e))?;
        let lock = lock(folder, patience)?;
        let path = folder.join("journal.jsonl");
        let file = open(&path)?;
        hsmux_state::sync_folder(folder).map_err(|e| failed("fsync", folder, &e))?;
        let mut writer = read(file, &path)?;
        decide(&mut writer, &path)?;
        // An older version has noted no times: the journal is rewritten to note them.
        writer.state.outdated |= writer.state.date_keys(seconds());
        let journal = Self {
            path,
            writer: Mutex::new(writer),
            _lock: lock,
        };
        journal.drop_keys(true);
        Ok(journal)
    }

    /// Removes keys that no member waits for from the file; returns whether some are left in it for now.
    pub fn drop_keys(&self, at_once: bool) -> bool {
        let mut writer = self.writer.lock();
        let cheap = writer.len <= SHORT || writer.len >= 2 * writer.base;
        if writer.state.outdated
            && (at_once || cheap)
            && let Err(error) = compact(&mut writer, &self.path)
        {
            tracing::warn!(%error, "wrapped keys that nobody needs stay in the journal for now");
        }
        writer.state.outdated
    }

    /// Members are not to have the keys any more that they have waited for for so long: their serial numbers, with
    /// the changes that made the keys.
    pub fn expire(&self, life: Duration) -> Vec<(String, u64)> {
        let before = seconds().saturating_sub(life.as_secs());
        let mut expired = self.read(|state| state.waiting_since(before));
        expired.retain(|(serial, change)| {
            let (serial, change) = (serial.clone(), *change);
            let written = self.append(JournalRecord::Expired { change, serial }, SyncPolicy::Now);
            written
                .inspect_err(|error| tracing::warn!(%error, "a wrapped key is kept for longer"))
                .is_ok()
        });
        expired
    }

    /// A token is not to get the keys of these changes any more.
    pub fn expire_for(&self, serial: &str, changes: Vec<u64>) -> Result<()> {
        changes.into_iter().try_for_each(|change| {
            let serial = serial.to_owned();
            self.append(JournalRecord::Expired { change, serial }, SyncPolicy::Later)
        })
    }

    /// A token is not to do these changes any more.
    pub fn forget(&self, serial: &str, changes: Vec<u64>) -> Result<()> {
        changes.into_iter().try_for_each(|change| {
            let serial = serial.to_owned();
            self.append(JournalRecord::Applied { change, serial }, SyncPolicy::Later)
        })
    }

    /// The time until the first waiting key has to be removed; nothing if none waits.
    pub fn expires_in(&self, life: Duration) -> Option<Duration> {
        let first = self.read(|state| state.keys_since.values().min().copied())?;
        let end = first.saturating_add(life.as_secs());
        Some(Duration::from_secs(end.saturating_sub(seconds())))
    }

    /// Takes the number of a new change, with its first line on the disk and room for the rest.
    pub fn begin(&self, call: &str) -> Result<u64> {
        let mut writer = self.writer.lock();
        if writer.lines > COMPACT_AFTER {
            compact(&mut writer, &self.path)?;
        }
        reserve(&writer, &self.path)?;
        let change = writer.state.last + 1;
        let call = call.to_owned();
        writer.append(
            &self.path,
            JournalRecord::Begin { change, call },
            SyncPolicy::Now,
        )?;
        Ok(change)
    }

    /// Decides changes whose last line could not be written. The answer has those that are finished, also those that
    /// were decided when the journal was opened.
    pub fn decide(&self) -> Result<Vec<Intent>> {
        let mut writer = self.writer.lock();
        decide(&mut writer, &self.path)?;
        Ok(std::mem::take(&mut writer.finished))
    }

    /// Adds a record.
    pub fn append(&self, record: JournalRecord, sync: SyncPolicy) -> Result<()> {
        self.writer.lock().append(&self.path, record, sync)
    }

    /// Finishes a deletion. Its Intent has decided that already, so Commit can also be written with the next record.
    pub fn commit_deletion(&self, change: u64) -> Result<()> {
        let mut writer = self.writer.lock();
        let (mut line, record) = (Vec::new(), JournalRecord::Commit { change });
        add_line(&mut line, &record, &self.path)?;
        if let Err(error) = writer.write(&self.path, &line, SyncPolicy::Now) {
            tracing::error!(%error, change, "the deletion is noted later");
            writer.unwritten.extend(line);
        }
        writer.state.add(record);
        Ok(())
    }

    /// Looks at what the records add up to.
    pub fn read<R>(&self, look: impl FnOnce(&JournalState) -> R) -> R {
        look(&self.writer.lock().state)
    }
}

impl JournalWriter {
    fn append(&mut self, path: &Path, record: JournalRecord, sync: SyncPolicy) -> Result<()> {
        let mut line = Vec::new();
        add_line(&mut line, &record, path)?;
        self.write(path, &line, sync)?;
        self.state.add(record);
        Ok(())
    }

    fn write(&mut self, path: &Path, line: &[u8], sync: SyncPolicy) -> Result<()> {
        let line = [&self.unwritten, line].concat();
        #[cfg(test)]
        crate::simulation::writes(&line).map_err(|e| failed("write", path, &e))?;
        let written = self
            .file
            .seek(SeekFrom::Start(self.len))
            .and_then(|_| self.file.write_all(&line))
            .and_then(|()| match sync {
                SyncPolicy::Now => self.file.sync_data(),
                SyncPolicy::Later => Ok(()),
            });
        if let Err(error) = written {
            // Cut off the half line, or a later line would follow it.
            let _ = self.file.set_len(self.len);
            return Err(failed("write", path, &error));
        }
        self.len += line.len() as u64;
        self.lines += 1;
        self.unwritten.clear();
        #[cfg(test)]
        crate::simulation::written(self.len, sync == SyncPolicy::Now);
        Ok(())
    }
}

fn add_line(lines: &mut Vec<u8>, record: &JournalRecord, path: &Path) -> Result<()> {
    serde_json::to_writer(&mut *lines, record).map_err(|e| damaged(path, &e.to_string()))?;
    lines.push(b'\n');
    Ok(())
}

/// The state of a journal that another process may be writing.
pub(super) fn state(folder: &Path) -> JournalState {
    let path = folder.join("journal.jsonl");
    let read = match File::open(&path) {
        Ok(file) => sum(BufReader::new(file), &path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return JournalState::default(),
        Err(e) => Err(failed("read", &path, &e)),
    };
    match read {
        Ok(sum) => sum.state,
        Err(error) => {
            tracing::warn!(%error, "deleted objects are not known");
            JournalState::default()
        }
    }
}

fn lock(folder: &Path, patience: Duration) -> Result<FileLock> {
    let path = folder.join("journal.lock");
    FileLock::take(&path, patience).map_err(|error| match error {
        LockFailed::File(error) => failed("lock", &path, &error),
        LockFailed::Held(_) => Error::pool(
            Kind::Environment,
            format!(
                "{}: another hsmux writes changes here; ask the running daemon, or stop it",
                folder.display()
            ),
        ),
    })
}

fn open(path: &Path) -> Result<File> {
    hsmux_state::open_private(path).map_err(|e| failed("open", path, &e))
}

/// Reads all lines; one that a crash has torn, at the end, is cut off.
fn read(file: File, path: &Path) -> Result<JournalWriter> {
    let ReplayedJournal { state, len, lines } = sum(BufReader::new(&file), path)?;
    file.set_len(len).map_err(|e| failed("write", path, &e))?;
    Ok(JournalWriter {
        file,
        len,
        lines,
        base: 0,
        state,
        finished: Vec::new(),
        unwritten: Vec::new(),
    })
}

/// The whole lines of a journal, added up.
#[derive(Default)]
struct ReplayedJournal {
    state: JournalState,
    len: u64,
    lines: usize,
}

fn sum(mut lines: impl BufRead, path: &Path) -> Result<ReplayedJournal> {
    let (mut sum, mut line) = (ReplayedJournal::default(), Vec::new());
    loop {
        line.clear();
        let read = lines
            .read_until(b'\n', &mut line)
            .map_err(|e| failed("read", path, &e))?;
        if line.last() != Some(&b'\n') {
            // An older version has not cancelled debts.
            sum.state.cancel_debts();
            return Ok(sum);
        }
        let record = serde_json::from_slice(&line)
            .map_err(|e| damaged(path, &format!("line {}: {e}", sum.lines + 1)))?;
        sum.state.add(record);
        sum.len += read as u64;
        sum.lines += 1;
    }
}

/// The time, in seconds after 1970.
pub(super) fn seconds() -> u64 {
    #[cfg(test)]
    if let Some(now) = crate::simulation::seconds() {
        return now;
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Finishes what enough members had done, and undoes the rest.
fn decide(writer: &mut JournalWriter, path: &Path) -> Result<()> {
    for (change, open) in writer.state.open.clone() {
        let last_word = open.intent.parts.iter().all(|part| part.undo.is_empty());
        let is_finished = last_word || open.done.len() >= open.intent.need;
        let record = if is_finished {
            JournalRecord::Commit { change }
        } else {
            let why = "interrupted before enough members had it".to_owned();
            JournalRecord::Undone {
                change,
                why,
                untouched: Vec::new(),
            }
        };
        writer.append(path, record, SyncPolicy::Now)?;
        if is_finished {
            writer.finished.push(open.intent);
        }
    }
    Ok(())
}

/// Reserves disk space beyond the end of the file; its length stays.
fn reserve(writer: &JournalWriter, path: &Path) -> Result<()> {
    use rustix::io::Errno;
    let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(&writer.file, flags, writer.len, RESERVE) {
        // A file system without such reservations: the writes themselves will tell.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(e) => Err(failed("write", path, &e.into())),
    }
}

/// All that a journal says, in one line.
fn snapshot(state: &JournalState) -> serde_json::Result<Vec<u8>> {
    let state = Box::new(state.clone());
    let mut line = serde_json::to_vec(&JournalRecord::Snapshot { state })?;
    line.push(b'\n');
    Ok(line)
}

/// The one line that replaces these lines, for fuzz targets; `None` if they are damaged.
pub(super) fn compacted(lines: &[u8]) -> Option<Vec<u8>> {
    let read = sum(lines, Path::new("journal")).ok()?;
    snapshot(&read.state).ok()
}

/// Puts one line in place of all.
fn compact(writer: &mut JournalWriter, path: &Path) -> Result<()> {
    writer.state.forget_old_tombstones();
    let line = snapshot(&writer.state).map_err(|e| damaged(path, &e.to_string()))?;
    #[cfg(test)]
    crate::simulation::writes(&line).map_err(|e| failed("write", path, &e))?;
    let replaced = hsmux_state::replace(path, &line, 0o600);
    // Also after an error: the new file may be in place, and not certain to last.
    writer.file = open(path)?;
    if let Err(error) = replaced {
        writer.len = writer.file.metadata().map_or(writer.len, |file| file.len());
        return Err(failed("write", path, &error));
    }
    writer.len = line.len() as u64;
    writer.base = writer.len;
    writer.lines = 1;
    writer.unwritten.clear();
    writer.state.outdated = false;
    #[cfg(test)]
    crate::simulation::written(writer.len, true);
    Ok(())
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::pool(
        Kind::Environment,
        format!(
            "{}: {what}; restore the state folder from a backup, or move this file away and run \
             `hsmux key verify` to see which members lack a key",
            path.display()
        ),
    )
}
