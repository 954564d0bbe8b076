//! The queue between the callers and the writer.

#[cfg(all(test, shuttle))]
mod interleavings;

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime};

use hsmux_token::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use hsmux_token::sync::{Condvar, Mutex, MutexGuard};
use hsmux_token::{Error, Result};

use crate::clock;
use crate::event::Event;
use crate::line::Gap;

/// The number of lines that may wait for the disk. A simulation can reach it.
pub const WAITING: usize = if cfg!(test) { 40 } else { 64 << 10 };

/// Lines that are written at once.
pub const BATCH: usize = if cfg!(test) { 16 } else { 10_000 };

/// The result that a caller waits for.
pub type Ticket = SyncSender<Result<()>>;

/// A line to be.
pub struct QueueEntry {
    pub event: Event,
    /// The caller that waits until the line is on disk.
    pub ticket: Option<Ticket>,
    /// The effect of a failed write.
    pub fate: OnWriteError,
}

/// The effect of a failed write on its line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnWriteError {
    /// It is tried again.
    Stays,
    /// It is tried again or counted as lost, by the configuration.
    ByPolicy,
    /// The caller gets the error, and does not act.
    Withdrawn,
}

/// The work for the writer.
#[derive(Default)]
pub struct WriteBatch {
    pub entries: Vec<QueueEntry>,
    pub reopen: Option<Ticket>,
    /// True if the trail is being closed.
    pub stops: bool,
    /// True at the end: no entries follow.
    pub last: bool,
}

/// Learns that the trail begins or ceases to admit.
pub type Observer = Box<dyn Fn() + Send + Sync>;

/// Shared by the trail and its writer.
pub struct Queue {
    inner: Mutex<QueueState>,
    wake: Condvar,
    /// True while the trail cannot be written, or not fast enough.
    trouble: AtomicBool,
    /// True if keys are then not used.
    pub stops: AtomicBool,
    /// The longest time of lines without a checkpoint, in milliseconds.
    pub checkpoint_ms: AtomicU64,
    gap: Mutex<Option<LostLines>>,
    lost: AtomicU64,
    refused: AtomicU64,
    observers: Mutex<Vec<Observer>>,
}

#[derive(Default)]
struct QueueState {
    entries: VecDeque<QueueEntry>,
    reopen: Option<Ticket>,
    /// Somebody waits.
    urgent: bool,
    writer: WriterState,
    /// True while the writer sleeps. It is woken only then, since that costs a system call.
    asleep: bool,
}

/// The writer's.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum WriterState {
    #[default]
    Writes,
    /// It ends when all is written.
    Stops,
    /// The writer's thread has ended.
    Ended,
}

/// The content of a gap's line.
#[derive(Clone)]
struct LostLines {
    since: SystemTime,
    lost: u64,
    refused: u64,
    why: String,
}

impl Queue {
    pub fn new() -> Self {
        Self {
            inner: Mutex::default(),
            wake: Condvar::new(),
            trouble: AtomicBool::new(false),
            stops: AtomicBool::new(true),
            checkpoint_ms: AtomicU64::new(0),
            gap: Mutex::new(None),
            lost: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            observers: Mutex::default(),
        }
    }

    /// Adds an observer.
    pub fn observe(&self, observer: Observer) {
        self.observers.lock().push(observer);
    }

    /// Sets whether keys are not used while the trail cannot be written.
    pub fn set_stops(&self, stops: bool) {
        if self.stops.swap(stops, Ordering::Relaxed) != stops {
            self.tell_observers();
        }
    }

    /// Informs the observers. The caller holds no lock of the queue.
    pub fn tell_observers(&self) {
        for observer in &*self.observers.lock() {
            observer();
        }
    }

    /// Adds a line, and never waits. A line that finds the queue full is counted as lost.
    pub fn put(&self, entry: QueueEntry) {
        let mut inner = self.inner.lock();
        if inner.writer == WriterState::Ended {
            // The end of the ticket tells the caller.
            return;
        }
        let waiting = inner.entries.len();
        // Lines that were admitted before the queue was full still have room.
        let stops = self.stops.load(Ordering::Relaxed);
        let places = if stops { 2 * WAITING } else { WAITING };
        let begins = waiting >= WAITING && !self.trouble.swap(true, Ordering::Relaxed);
        if waiting >= places && entry.fate == OnWriteError::ByPolicy {
            drop(inner);
            self.miss("lines came faster than they could be written", 1, 0);
        } else {
            inner.urgent |= entry.ticket.is_some();
            inner.entries.push_back(entry);
            self.rouse(inner);
        }
        if begins {
            self.tell_observers();
        }
    }

    /// Makes the writer check that the file is still in its place.
    pub fn reopen(&self, ticket: Ticket) {
        let mut inner = self.inner.lock();
        if inner.writer == WriterState::Ended {
            return;
        }
        inner.reopen = Some(ticket);
        inner.urgent = true;
        self.rouse(inner);
    }

    /// Makes the writer end when all is written.
    pub fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.writer = WriterState::Stops;
        inner.urgent = true;
        self.rouse(inner);
    }

    fn rouse(&self, mut inner: MutexGuard<'_, QueueState>) {
        let wake = inner.urgent || inner.asleep;
        inner.asleep = false;
        drop(inner);
        if wake {
            self.wake.notify_one();
        }
    }

    /// For the writer: waits for work, or until `deadline`. Lines gather until `not_before`, unless a caller waits
    /// for one.
    pub fn take(&self, not_before: Instant, deadline: Option<Instant>) -> WriteBatch {
        let mut inner = self.inner.lock();
        loop {
            let now = clock::now();
            if inner.has_work(now, not_before, deadline) {
                return inner.take();
            }
            // Lines that gather wake nobody.
            inner.asleep = now >= not_before;
            let until = if inner.asleep {
                deadline
            } else {
                Some(not_before)
            };
            match until {
                Some(until) => _ = self.wake.wait_until(&mut inner, until),
                None => self.wake.wait(&mut inner),
            }
        }
    }

    /// The same without waiting.
    #[cfg(test)]
    pub fn try_take(&self, not_before: Instant, deadline: Option<Instant>) -> Option<WriteBatch> {
        let mut inner = self.inner.lock();
        let has_work = inner.has_work(clock::now(), not_before, deadline);
        has_work.then(|| inner.take())
    }

    /// Puts back lines that could not be written. Callers that wait for one behind them get the error as well.
    pub fn put_back(&self, entries: Vec<QueueEntry>, error: impl Fn() -> Error) {
        let mut inner = self.inner.lock();
        inner.entries.retain_mut(|entry| {
            if let Some(ticket) = entry.ticket.take() {
                let _ = ticket.send(Err(error()));
            }
            entry.fate != OnWriteError::Withdrawn
        });
        inner.urgent = inner.reopen.is_some() || inner.writer == WriterState::Stops;
        for entry in entries.into_iter().rev() {
            inner.entries.push_front(entry);
        }
    }

    /// Ends the writer; returns the number of lines that are lost with it.
    pub fn end(&self) -> usize {
        let mut inner = self.inner.lock();
        inner.writer = WriterState::Ended;
        // The end of the ticket tells the caller.
        inner.reopen = None;
        std::mem::take(&mut inner.entries).len()
    }

    /// Lines that wait.
    pub fn waiting(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// True if a key may be used now. Costs one load in the normal case.
    pub fn admits(&self) -> bool {
        !self.trouble.load(Ordering::Relaxed) || !self.stops.load(Ordering::Relaxed)
    }

    /// Sets or clears the trouble of writing.
    pub fn set_trouble(&self, why: Option<&str>) {
        if let Some(why) = why {
            self.miss(why, 0, 0);
        }
        let had_trouble = self.trouble.swap(why.is_some(), Ordering::Relaxed);
        // It may have another reason than before.
        if had_trouble || why.is_some() {
            self.tell_observers();
        }
    }

    /// Counts lost lines and refused uses.
    pub fn miss(&self, why: &str, lost: u64, refused: u64) {
        let mut gap = self.gap.lock();
        let gap = gap.get_or_insert_with(|| LostLines {
            since: clock::wall(),
            lost: 0,
            refused: 0,
            why: why.to_owned(),
        });
        gap.lost = gap.lost.saturating_add(lost);
        gap.refused = gap.refused.saturating_add(refused);
        self.lost.fetch_add(lost, Ordering::Relaxed);
        self.refused.fetch_add(refused, Ordering::Relaxed);
    }

    /// The gap so far, for its line.
    pub fn gap(&self) -> Option<Gap> {
        let gap = self.gap.lock().clone()?;
        Some(Gap {
            since: humantime::format_rfc3339_micros(gap.since).to_string(),
            lost: gap.lost,
            refused: gap.refused,
            why: gap.why,
        })
    }

    /// The gap's line is written; what was lost meanwhile is another gap.
    pub fn told(&self, told: &Gap) {
        let mut gap = self.gap.lock();
        let left = gap.take().and_then(|gap| {
            let (lost, refused) = (gap.lost - told.lost, gap.refused - told.refused);
            (lost + refused > 0).then_some(LostLines {
                lost,
                refused,
                ..gap
            })
        });
        *gap = left;
    }

    /// Lines lost and uses refused since the start.
    pub fn missed(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.lost), count(&self.refused))
    }

    /// The longest time of lines without a checkpoint.
    pub fn checkpoint(&self) -> Duration {
        Duration::from_millis(self.checkpoint_ms.load(Ordering::Relaxed))
    }
}

impl QueueState {
    fn has_work(&self, now: Instant, not_before: Instant, deadline: Option<Instant>) -> bool {
        let is_late = deadline.is_some_and(|deadline| now >= deadline);
        self.urgent || now >= not_before && (is_late || !self.entries.is_empty())
    }

    fn take(&mut self) -> WriteBatch {
        self.asleep = false;
        let count = self.entries.len().min(BATCH);
        let entries = self.entries.drain(..count).collect();
        let more = !self.entries.is_empty();
        self.urgent = more && self.urgent;
        let stops = self.writer == WriterState::Stops;
        WriteBatch {
            entries,
            reopen: self.reopen.take(),
            stops,
            last: stops && !more,
        }
    }
}
