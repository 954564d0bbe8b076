//! The thread that writes lines, many at once, and checkpoints.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hsmux_token::Result;
use serde::Serialize;

use crate::audit_folder::{AuditFolder, Head, SavedChain, WriterLock};
use crate::chain::Chain;
use crate::clock;
use crate::file::TrailFile;
use crate::keys::CheckpointSigner;
use crate::line::{CheckpointReason, Gap, StartFindings};
use crate::queue::{OnWriteError, QueueEntry, WriteBatch};
use crate::recover::recover;
use crate::trail::{TrailState, failed};

/// The time in which lines gather, unless a caller waits for one.
const GATHER_TIME: Duration = Duration::from_millis(5);

/// The time after which written lines are on disk.
const SYNC: Duration = Duration::from_secs(1);

/// The most lines before a checkpoint.
const LINES: u64 = if cfg!(test) { 30 } else { 10_000 };

/// The time between two attempts to write.
const PAUSE: Duration = Duration::from_secs(1);

/// All that is needed to write.
pub struct TrailWriter {
    shared: Arc<TrailState>,
    folder: AuditFolder,
    _lock: WriterLock,
    signer: CheckpointSigner,
    chain: Chain,
    pub file: TrailFile,
    /// The checkpoint that has to come first.
    first: Option<(CheckpointReason, StartFindings)>,
    /// The number of lines since the last checkpoint, and the time of the first of them.
    open: (u64, Option<Instant>),
    /// The time of the first written line that may not be on disk.
    unsynced: Option<Instant>,
    /// A checkpoint that is not in the state folder yet, and whether it is the last.
    unsaved: Option<bool>,
    wrote: Instant,
    fails: bool,
}

/// The line of a gap.
#[derive(Serialize)]
struct GapLine<'a> {
    gap: &'a Gap,
}

impl TrailWriter {
    /// Continues at the end of the last run. Nothing is written yet.
    pub fn open(path: &Path, folder: AuditFolder, shared: Arc<TrailState>) -> Result<Self> {
        let turn = folder.take()?;
        let kept = folder.load()?;
        let signer = folder.signer_or_new()?;
        let recovered = recover(kept.as_ref(), path)?;
        if let Some(why) = &recovered.found.broken {
            tracing::error!(
                why,
                "the audit trail is not as it was left; see hsmux audit verify"
            );
        }
        let file = TrailFile::open(path).map_err(|e| failed(path, &e))?;
        let chain = recovered.chain;
        if kept.is_none() {
            // Without the secret a later start could not tell that the first line is the trail's own.
            let kept = SavedChain::new(&chain, path, file.len(), false);
            folder.save(&kept).map_err(|e| failed(path, &e))?;
        }
        *shared.head.lock() = head(&chain);
        Ok(Self {
            shared,
            folder,
            _lock: turn,
            signer,
            chain,
            file,
            first: Some((CheckpointReason::Start, recovered.found)),
            open: (0, None),
            unsynced: None,
            unsaved: None,
            wrote: clock::now(),
            fails: false,
        })
    }

    /// Writes until the trail is dropped.
    pub fn run(&mut self) {
        self.begin();
        let mut goes_on = true;
        while goes_on {
            let work = self.shared.queue.take(self.not_before(), self.deadline());
            goes_on = self.turn(work);
        }
    }

    /// Writes the first checkpoint.
    pub fn begin(&mut self) {
        self.write(Vec::new(), None);
    }

    /// Does this work. False if it was the last.
    pub fn turn(&mut self, work: WriteBatch) -> bool {
        let end = work.last.then_some(CheckpointReason::Stop);
        let is_written = self.write(work.entries, end);
        if let Some(ticket) = work.reopen {
            let turned = self.turn_over().and_then(|()| self.save());
            // Without an error perhaps nothing was written: only that shows that it can be.
            if let Err(error) = &turned {
                self.judge(Some(error));
            }
            let _ = ticket.send(turned.map_err(|e| failed(self.file.path(), &e)));
        }
        let is_last = work.last || work.stops && !is_written;
        if is_last {
            self.leave();
        }
        !is_last
    }

    /// Lines gather until then, unless a caller waits for one.
    pub fn not_before(&self) -> Instant {
        self.wrote + if self.fails { PAUSE } else { GATHER_TIME }
    }

    /// The time of the next work without new lines.
    pub fn deadline(&self) -> Option<Instant> {
        let sync = self.unsynced.map(|since| since + SYNC);
        let checkpoint = self.shared.queue.checkpoint();
        let checkpoint = self.open.1.map(|since| since + checkpoint);
        let retry = self.fails.then(|| self.wrote + PAUSE);
        [sync, checkpoint, retry].into_iter().flatten().min()
    }

    /// Writes lines and a due checkpoint; informs the callers. False if they could not be written.
    fn write(&mut self, entries: Vec<QueueEntry>, end: Option<CheckpointReason>) -> bool {
        let due = end.or_else(|| self.due(entries.len() as u64));
        let written = self.in_place(due).and_then(|()| self.append(&entries, due));
        let is_written = written.is_ok();
        self.wrote = clock::now();
        // After an error judge first: a caller that gets the error must not find keys in use.
        match written {
            Ok(()) => {
                for ticket in entries.into_iter().filter_map(|entry| entry.ticket) {
                    let _ = ticket.send(Ok(()));
                }
                let saved = self.save();
                self.judge(saved.as_ref().err());
            }
            Err(error) => {
                self.judge(Some(&error));
                self.keep(entries, &error);
            }
        }
        is_written
    }

    /// The checkpoint that is due by number or time. After a failure it shows whether writing works again.
    fn due(&self, more: u64) -> Option<CheckpointReason> {
        let (lines, since) = self.open;
        let old = since.is_some_and(|since| clock::now() >= since + self.shared.queue.checkpoint());
        if lines + more >= LINES {
            return Some(CheckpointReason::Lines);
        }
        (old || self.fails).then_some(CheckpointReason::Time)
    }

    /// If the file was moved away, the next lines go to a new one.
    fn in_place(&mut self, due: Option<CheckpointReason>) -> io::Result<()> {
        if due.is_some() && !self.file.is_in_place() {
            return self.turn_over();
        }
        Ok(())
    }

    fn append(&mut self, entries: &[QueueEntry], due: Option<CheckpointReason>) -> io::Result<()> {
        let mut chain = self.chain.clone();
        let mut block = Vec::new();
        if let Some((why, found)) = &self.first {
            chain.checkpoint(&self.signer, *why, found.clone(), &mut block);
        }
        let gap = self.shared.queue.gap();
        if let Some(gap) = &gap {
            chain.add(clock::wall(), &GapLine { gap }, &mut block);
        }
        for QueueEntry { event, .. } in entries {
            chain.add(event.time, event, &mut block);
        }
        // The epoch of a checkpoint just made is empty, unless lines followed.
        let lines = entries.len() as u64 + u64::from(gap.is_some());
        let open = if self.first.is_some() {
            lines
        } else {
            lines + self.open.0
        };
        // Only this shows whether writing works again.
        let untried = block.is_empty() && self.unsaved.is_none();
        let due =
            due.filter(|why| *why == CheckpointReason::Stop || open > 0 || self.fails && untried);
        if let Some(why) = due {
            chain.checkpoint(&self.signer, why, StartFindings::default(), &mut block);
        }
        let closed = due.is_some() || self.first.is_some();
        let waits = entries.iter().any(|entry| entry.ticket.is_some());
        let old = self
            .unsynced
            .is_some_and(|since| clock::now() >= since + SYNC);
        let sync = closed || waits || old;
        if !block.is_empty() || sync {
            self.file.append(&block, sync)?;
        }
        self.appended(chain, sync, lines, due, closed);
        if let Some(gap) = &gap {
            self.shared.queue.told(gap);
        }
        Ok(())
    }

    fn appended(
        &mut self,
        chain: Chain,
        sync: bool,
        lines: u64,
        due: Option<CheckpointReason>,
        closed: bool,
    ) {
        let now = clock::now();
        self.chain = chain;
        *self.shared.head.lock() = head(&self.chain);
        if closed {
            self.first = None;
            self.open = (0, None);
            self.unsaved = Some(due == Some(CheckpointReason::Stop));
        }
        if lines > 0 && due.is_none() {
            self.open = (self.open.0 + lines, self.open.1.or(Some(now)));
        }
        if sync {
            self.unsynced = None;
        } else if lines > 0 {
            self.unsynced.get_or_insert(now);
        }
    }

    /// Saves the end of the chain in the state folder; the next start finds the lines after it.
    fn save(&mut self) -> io::Result<()> {
        // A new file has the end of the chain from its first checkpoint on.
        if let Some(stopped) = self.unsaved.filter(|_| self.first.is_none()) {
            let kept = SavedChain::new(&self.chain, self.file.path(), self.file.len(), stopped);
            self.folder.save(&kept)?;
            self.unsaved = None;
        }
        Ok(())
    }

    /// Continues in a new file if the path leads to another one, or to none.
    fn turn_over(&mut self) -> io::Result<()> {
        if self.file.is_in_place() {
            return Ok(());
        }
        let file = TrailFile::open(self.file.path())?;
        if let Err(error) = self.append(&[], Some(CheckpointReason::Close)) {
            tracing::warn!(%error, "the old file of the audit trail ends without a checkpoint");
            // The next checkpoint covers its lines: a power cut must not take them away.
            if let Err(error) = self.file.sync() {
                tracing::warn!(%error, "the last lines of the old file may not be on disk");
            }
        } else if let Err(error) = self.save() {
            // The checkpoint tells the key of its lines: a start must not follow lines made with that.
            tracing::warn!(%error, "the end of the old file is not in the state folder");
        }
        self.file = file;
        self.first
            .get_or_insert((CheckpointReason::Open, StartFindings::default()));
        self.append(&[], None)
    }

    /// Handles lines that could not be written.
    fn keep(&self, entries: Vec<QueueEntry>, error: &io::Error) {
        let queue = &self.shared.queue;
        let stops = queue.stops.load(Ordering::Relaxed);
        let mut kept = Vec::new();
        for mut entry in entries {
            if let Some(ticket) = entry.ticket.take() {
                let _ = ticket.send(Err(failed(self.file.path(), error)));
            }
            match entry.fate {
                OnWriteError::Withdrawn => {}
                OnWriteError::ByPolicy if !stops => queue.miss(&error.to_string(), 1, 0),
                OnWriteError::ByPolicy | OnWriteError::Stays => kept.push(entry),
            }
        }
        queue.put_back(kept, || failed(self.file.path(), error));
    }

    /// Publishes the state: to users of keys, in the status, and once in the log.
    fn judge(&mut self, error: Option<&io::Error>) {
        let why = error.map(|e| format!("{}: {e}", self.file.path().display()));
        match (&why, self.fails) {
            (Some(why), false) => tracing::error!(why, "the audit trail cannot be written"),
            (None, true) => tracing::info!("the audit trail can be written again"),
            _ => {}
        }
        self.fails = why.is_some();
        // Observers ask for the problem.
        (*self.shared.problem.lock()).clone_from(&why);
        self.shared.queue.set_trouble(why.as_deref());
    }

    fn leave(&self) {
        let lost = self.shared.queue.end();
        if lost > 0 {
            tracing::error!(
                lost,
                "the daemon ends, and lines of the audit trail are lost"
            );
        }
    }
}

fn head(chain: &Chain) -> Head {
    Head {
        seq: chain.seq,
        mac: chain.mac,
    }
}
