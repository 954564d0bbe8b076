//! Lines that wait, and the thread that takes them.

#[cfg(all(test, shuttle))]
mod interleavings;

use std::time::{Duration, Instant};

use hsmux_token::sync::{Condvar, Mutex, MutexGuard};

use super::output::Output;

/// Bytes of lines that wait.
pub const LONGEST_QUEUE: usize = 1 << 20;

/// How long the first line waits for others: one write takes them all.
const GATHER: Duration = Duration::from_millis(20);

/// How often lost lines are logged.
const REPORTS: Duration = Duration::from_secs(60);

/// How long the end waits for the last lines.
pub const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// A bounded queue of lines.
pub struct LineQueue {
    service: &'static str,
    on_loss: Box<dyn Fn(u64) + Send + Sync>,
    state: Mutex<QueueState>,
    /// There is something to write, or the queue is closed.
    woken: Condvar,
    /// The thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct QueueState {
    lines: Vec<u8>,
    /// Lines that found no room since the last batch.
    refused: u64,
    /// Other outputs, each for the lines from this byte on.
    switches: Vec<(usize, Option<Output>)>,
    has_thread: bool,
    is_closed: bool,
}

/// What the thread takes at once.
struct Batch {
    lines: Vec<u8>,
    refused: u64,
    switches: Vec<(usize, Option<Output>)>,
}

/// Lines that found no room and were not logged yet.
struct Refusals {
    count: u64,
    reported: Option<Instant>,
}

impl LineQueue {
    pub fn new(service: &'static str, on_loss: Box<dyn Fn(u64) + Send + Sync>) -> Self {
        Self {
            service,
            on_loss,
            state: Mutex::default(),
            woken: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// Adds a line. It never waits: a line that finds no room is counted.
    pub fn push(&self, line: &str) {
        let mut state = self.state.lock();
        if state.lines.len() + line.len() > LONGEST_QUEUE {
            state.refused += 1;
            drop(state);
            return (self.on_loss)(1);
        }
        let was_empty = state.lines.is_empty();
        state.lines.extend_from_slice(line.as_bytes());
        drop(state);
        if was_empty {
            self.woken.notify_one();
        }
    }

    /// Lines from now on go elsewhere; `None`: there are none.
    pub fn switch(&self, output: Option<Output>) {
        let mut state = self.state.lock();
        let from = state.lines.len();
        state.switches.push((from, output));
        drop(state);
        self.woken.notify_one();
    }

    /// `true`, once: a thread has to be started.
    pub fn begin(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().has_thread, true)
    }

    /// It was not started.
    pub fn not_begun(&self) {
        self.state.lock().has_thread = false;
    }

    /// Has the last lines written, and waits for that for a while.
    pub fn close(&self) {
        let until = Instant::now() + CLOSE_WITHIN;
        let mut state = self.state.lock();
        state.is_closed = true;
        self.woken.notify_one();
        while state.has_thread && !self.ended.wait_until(&mut state, until) {}
    }

    /// Writes all lines until the queue is closed, and those before that.
    pub fn write_all(&self) {
        let mut output: Option<Output> = None;
        let mut refusals = Refusals {
            count: 0,
            reported: None,
        };
        while let Some(batch) = self.next(refusals.due()) {
            let write = |output: &mut Option<Output>, lines: &[u8]| {
                let Some(output) = output else { return };
                let lost = output.write(self.service, lines);
                if lost > 0 {
                    (self.on_loss)(lost);
                }
            };
            let mut from = 0;
            for (at, next) in batch.switches {
                write(&mut output, &batch.lines[from..at]);
                (from, output) = (at, next);
            }
            write(&mut output, &batch.lines[from..]);
            refusals.add(self.service, batch.refused);
        }
        refusals.report(self.service);
        self.end();
    }

    /// The thread ends.
    fn end(&self) {
        self.state.lock().has_thread = false;
        self.ended.notify_all();
    }

    /// The next lines; none at `due`. `None`: the queue is closed, and all was taken.
    fn next(&self, due: Option<Instant>) -> Option<Batch> {
        let mut state = self.state.lock();
        while state.is_idle() && !state.is_closed {
            match due {
                None => self.woken.wait(&mut state),
                Some(due) if self.woken.wait_until(&mut state, due) => break,
                Some(_) => {}
            }
        }
        if state.is_idle() && state.is_closed {
            return None;
        }
        self.gather(&mut state);
        Some(Batch {
            lines: std::mem::take(&mut state.lines),
            refused: std::mem::take(&mut state.refused),
            switches: std::mem::take(&mut state.switches),
        })
    }

    fn gather(&self, state: &mut MutexGuard<'_, QueueState>) {
        let until = Instant::now() + GATHER;
        while !state.is_closed && !state.lines.is_empty() {
            if self.woken.wait_until(state, until) {
                return;
            }
        }
    }
}

impl QueueState {
    fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.switches.is_empty()
    }
}

impl Refusals {
    /// When they are to be logged.
    fn due(&self) -> Option<Instant> {
        let last = self.reported.filter(|_| self.count > 0);
        last.map(|last| last + REPORTS)
    }

    fn add(&mut self, service: &str, refused: u64) {
        self.count += refused;
        if self.reported.is_none_or(|last| last.elapsed() >= REPORTS) {
            self.report(service);
        }
    }

    fn report(&mut self, service: &str) {
        if self.count == 0 {
            return;
        }
        tracing::warn!(
            "[{service}] access_log: {} lines were lost, because {} KiB of others were waiting to be written",
            self.count,
            LONGEST_QUEUE >> 10
        );
        self.count = 0;
        self.reported = Some(Instant::now());
    }
}
