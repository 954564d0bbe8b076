//! The trail for its callers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hsmux_token::{Error, Kind, Result, Scope, ck};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::audit_folder::{AuditFolder, Head};
use crate::event::Event;
use crate::queue::{OnWriteError, Queue, QueueEntry, Ticket};
use crate::writer::TrailWriter;

/// The effect of a failing trail on the use of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Keys are not used until it can be written again.
    Stop,
    /// Keys are used, and lost lines are counted.
    Continue,
}

impl OnFailure {
    /// `Stop`, or not.
    pub fn which(stops: bool) -> Self {
        if stops { Self::Stop } else { Self::Continue }
    }
}

/// The settings of a trail.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file of the lines.
    pub file: PathBuf,
    /// The state folder, which is there.
    pub state: PathBuf,
    /// True if each use of a key is a line.
    pub uses: bool,
    /// The effect of a failure on those uses.
    pub on_failure: OnFailure,
    /// The longest time of lines without a signed checkpoint.
    pub checkpoint: Duration,
}

/// How a trail is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrailStatus {
    /// Its file.
    pub file: PathBuf,
    /// The last line that is written.
    pub head: Head,
    /// True if each use of a key is a line.
    pub uses: bool,
    /// The effect of a failure on those uses.
    pub on_failure: OnFailure,
    /// Lines that wait to be written.
    pub waiting: usize,
    /// Lines lost since the start.
    pub lost: u64,
    /// Uses of keys, changes and acts refused since the start, since the trail could not be written.
    pub refused: u64,
    /// Why it cannot be written now.
    pub problem: Option<String>,
}

/// The trail. Dropping it [closes](Trail::close) it.
pub struct Trail {
    file: PathBuf,
    uses: AtomicBool,
    pub(crate) shared: Arc<TrailState>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the trail and its writer share.
pub struct TrailState {
    pub queue: Queue,
    pub head: Mutex<Head>,
    pub problem: Mutex<Option<String>>,
}

impl Trail {
    /// Opens the trail at the end of its last run. Fails if the file cannot be opened, or another process writes it.
    /// A full disk is no failure, but a [problem](TrailStatus).
    pub fn open(settings: &Settings) -> Result<Self> {
        let (trail, mut writer) = Self::with_writer(settings)?;
        let thread = thread::Builder::new()
            .name("hsmux-audit".into())
            .spawn(move || writer.run())
            .map_err(|e| failed(&settings.file, &e))?;
        *trail.writer.lock() = Some(thread);
        Ok(trail)
    }

    /// The same without the thread that writes.
    pub(crate) fn with_writer(settings: &Settings) -> Result<(Self, TrailWriter)> {
        let folder = AuditFolder::of(&settings.state);
        let shared = Arc::new(TrailState {
            queue: Queue::new(),
            head: Mutex::new(Head {
                seq: 0,
                mac: [0; 32],
            }),
            problem: Mutex::default(),
        });
        let writer = TrailWriter::open(&settings.file, folder, Arc::clone(&shared))?;
        let trail = Self {
            file: settings.file.clone(),
            uses: AtomicBool::new(false),
            shared,
            writer: Mutex::default(),
        };
        trail.change(settings);
        Ok((trail, writer))
    }

    /// Applies all settings except file and state folder.
    pub fn change(&self, settings: &Settings) {
        let queue = &self.shared.queue;
        if self.uses.swap(settings.uses, Ordering::Relaxed) != settings.uses {
            queue.tell_observers();
        }
        queue.set_stops(settings.on_failure == OnFailure::Stop);
        let checkpoint = settings.checkpoint.as_millis() as u64;
        queue.checkpoint_ms.store(checkpoint, Ordering::Relaxed);
    }

    /// True if each use of a key is to be recorded. Costs one load: ask before making an [`Event`].
    pub fn wants_uses(&self) -> bool {
        self.uses.load(Ordering::Relaxed)
    }

    /// Calls `observer` whenever the trail may have begun or ceased to [admit](Self::admits), or to [want
    /// uses](Self::wants_uses). It runs on the thread that has caused this, which may be the writer's: it must not wait.
    pub fn observe(&self, observer: Box<dyn Fn() + Send + Sync>) {
        self.shared.queue.observe(observer);
    }

    /// True if [`admit`](Self::admit) allows the use of a key now; nothing is counted.
    pub fn admits(&self) -> bool {
        self.shared.queue.admits()
    }

    /// Allows the use of a key or the change of a token's object, or refuses it: ask before an act that is to be
    /// recorded. The error is for the caller: CKR_DEVICE_MEMORY, and that the service is unavailable for now.
    pub fn admit(&self) -> Result<()> {
        if self.admits() {
            return Ok(());
        }
        let why = self.why_not();
        self.shared.queue.miss(&why, 0, 1);
        Err(not_admitted(&why))
    }

    /// Why [`admit`](Self::admit) allows nothing now, if so; nothing is counted.
    pub fn obstacle(&self) -> Option<String> {
        (!self.admits()).then(|| self.why_not())
    }

    fn why_not(&self) -> String {
        let problem = self.shared.problem.lock().clone();
        problem.unwrap_or_else(|| "lines come faster than they can be written".into())
    }

    /// Counts acts that are refused, since their events cannot become lines.
    pub fn refuse(&self, why: &str, acts: u64) {
        self.shared.queue.miss(why, 0, acts);
    }

    /// Lines that wait to be written.
    pub fn waiting(&self) -> usize {
        self.shared.queue.waiting()
    }

    /// Counts lines that were lost before they came here.
    pub fn lose(&self, why: &str, lines: u64) {
        self.shared.queue.miss(why, lines, 0);
    }

    /// Records an event. Never waits; a few milliseconds later it is in the file, a second later on disk.
    pub fn record(&self, event: Event) {
        self.shared.queue.put(QueueEntry {
            event,
            ticket: None,
            fate: OnWriteError::ByPolicy,
        });
    }

    /// Records a completed act; on disk when this returns. After an error the line is tried again.
    pub fn commit(&self, event: Event) -> Result<()> {
        self.answer(&self.ask(event, OnWriteError::Stays))
    }

    /// Records an act that is about to be done; the line is on disk when this returns. After an error the act must
    /// not be done, and it has no line.
    pub fn announce(&self, event: Event) -> Result<()> {
        let announced = self.answer(&self.ask(event, OnWriteError::Withdrawn));
        announced.map_err(|error| not_begun(&error, ""))
    }

    /// Like [`announce`](Self::announce), but with [`OnFailure::Continue`] a line that cannot be written is counted
    /// as lost, and the act goes on.
    pub fn announce_by_policy(&self, event: Event) -> Result<()> {
        let announced = self.answer(&self.ask(event, OnWriteError::Withdrawn));
        announced.or_else(|error| self.go_on_by_policy(&error))
    }

    /// Whether an act begins whose line could not be written.
    pub(crate) fn go_on_by_policy(&self, error: &Error) -> Result<()> {
        let queue = &self.shared.queue;
        let stops = queue.stops.load(Ordering::Relaxed);
        let why = error.to_string();
        queue.miss(&why, u64::from(!stops), u64::from(stops));
        if !stops {
            return Ok(());
        }
        let or = ", or set [audit] on_failure = \"continue\" and reload";
        Err(not_begun(error, or))
    }

    /// Records an event, and answers when the line is on disk.
    pub(crate) fn ask(&self, event: Event, fate: OnWriteError) -> Receiver<Result<()>> {
        let (ticket, answer) = sync_channel(1);
        self.shared.queue.put(QueueEntry {
            event,
            ticket: Some(ticket),
            fate,
        });
        answer
    }

    /// Checks whether a rotation of logs has replaced the file. Fails if the new one cannot be opened; the trail then
    /// continues in the old one.
    pub fn reopen(&self) -> Result<()> {
        let (ticket, answer): (Ticket, _) = sync_channel(1);
        self.shared.queue.reopen(ticket);
        self.answer(&answer)
    }

    fn answer(&self, answer: &Receiver<Result<()>>) -> Result<()> {
        answer.recv().unwrap_or_else(|_| {
            let gone = std::io::Error::other("its writer has ended");
            Err(failed(&self.file, &gone))
        })
    }

    /// Writes the waiting lines and a last checkpoint; later events are dropped.
    pub fn close(&self) {
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            self.shared.queue.stop();
            let _ = writer.join();
        }
    }

    /// How it is.
    pub fn status(&self) -> TrailStatus {
        let queue = &self.shared.queue;
        let (lost, refused) = queue.missed();
        let stops = queue.stops.load(Ordering::Relaxed);
        TrailStatus {
            file: self.file.clone(),
            head: self.shared.head.lock().clone(),
            uses: self.wants_uses(),
            on_failure: OnFailure::which(stops),
            waiting: queue.waiting(),
            lost,
            refused,
            problem: self.shared.problem.lock().clone(),
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        self.close();
    }
}

/// `or` is the alternative to fixing the error.
fn not_begun(error: &Error, or: &str) -> Error {
    let message = format!("it is not begun while it cannot be recorded: {error}; fix that{or}");
    Error::new(error.scope(), error.kind(), message)
}

/// The error of [`Trail::admit`].
pub fn not_admitted(why: &str) -> Error {
    let message = format!(
        "what has to be recorded is not done while the audit trail cannot be written: {why}; make \
         room for it, or set [audit] on_failure = \"continue\""
    );
    let kind = Kind::Vendor(ck::CKR_DEVICE_MEMORY);
    Error::new(Scope::Pool, kind, message)
}

/// The error of the trail's file.
pub fn failed(file: &Path, why: &std::io::Error) -> Error {
    let message = format!("audit trail {}: {why}", file.display());
    Error::pool(Kind::Environment, message)
}
