//! One round: all workers from a common start to a common end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::worker::{self, Tally};
use super::{Control, Load, Phase, Plan, Progress, Until, Work, waiting};

/// What the workers of a round may hold in memory together. Past it the round ends, answers are
/// checked, and another round begins.
const MEMORY: usize = 128 << 20;

/// How often the round is looked at.
pub(super) const GLANCE: Duration = Duration::from_millis(100);

/// What a round is made of.
pub struct Setup<'a> {
    pub plan: &'a Plan,
    pub until: Until,
    pub control: Control<'a>,
    pub work: Work<'a>,
    /// Whether the answers are kept, to be checked.
    pub keeps: bool,
    pub phase: Phase,
}

/// What is seen of a round while it runs.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    /// Since the round began.
    pub elapsed: Duration,
    pub ops: u64,
    pub failed: u64,
}

/// What a round found.
pub struct Ended {
    /// Of each thread.
    pub tallies: Vec<Tally>,
    /// Whether it ended for want of memory, and there is more to do.
    pub full: bool,
}

/// Runs a round; `glance` sees it some ten times a second, on the caller's thread.
pub fn run(setup: &Setup<'_>, mut glance: impl FnMut(Seen)) -> Ended {
    let workers = setup.plan.load.workers();
    let threads = setup.work.threads(workers);
    let board = Board::new(setup);
    let barrier = Barrier::new(threads + 1);
    let tallies = thread::scope(|scope| {
        // Nothing is sent: the last worker to leave closes the channel, which ends the wait.
        let (working, ended) = mpsc::channel::<()>();
        let running: Vec<_> = (0..threads)
            .map(|index| {
                let (board, barrier, work) = (&board, &barrier, setup.work);
                let working = working.clone();
                scope.spawn(move || {
                    let _working = working;
                    match work {
                        Work::Blocking(run) => {
                            let tally = Tally::ready();
                            barrier.wait();
                            worker::work(index, board, run, tally)
                        }
                        Work::Waiting(callers, ending) => {
                            let own = (index..workers).step_by(threads);
                            waiting::work(own, board, callers, ending, barrier)
                        }
                    }
                })
            })
            .collect();
        drop(working);
        barrier.wait();
        board.start();
        while ended.recv_timeout(GLANCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            let seen = board.seen();
            glance(seen);
            (setup.control.progress)(&Progress::of(setup, seen));
        }
        glance(board.seen());
        running
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    let full = board.full.load(Relaxed);
    Ended { tallies, full }
}

/// What the workers share.
pub struct Board<'a> {
    pub load: Load,
    pub keeps: bool,
    /// What one worker may hold in memory, in bytes.
    pub share: usize,
    until: Until,
    stop: &'a AtomicBool,
    start: OnceLock<Instant>,
    next: AtomicU64,
    ops: AtomicU64,
    failed: AtomicU64,
    full: AtomicBool,
}

impl<'a> Board<'a> {
    fn new(setup: &Setup<'a>) -> Self {
        Self {
            load: setup.plan.load,
            keeps: setup.keeps,
            share: MEMORY / setup.plan.load.workers().max(1),
            until: setup.until,
            stop: setup.control.stop,
            start: OnceLock::new(),
            next: AtomicU64::new(0),
            ops: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            full: AtomicBool::new(false),
        }
    }

    /// When the round began.
    pub fn start(&self) -> Instant {
        *self.start.get_or_init(Instant::now)
    }

    /// The number of the next operation, if there is one.
    pub fn claim(&self) -> Option<u64> {
        if self.stopped() || self.full.load(Relaxed) {
            return None;
        }
        if self.end().is_some_and(|end| Instant::now() >= end) {
            return None;
        }
        let number = self.next.fetch_add(1, Relaxed);
        match self.until {
            Until::Count(count) if number >= count => None,
            _ => Some(number),
        }
    }

    /// When the round ends, if the clock ends it.
    pub fn end(&self) -> Option<Instant> {
        match self.until {
            Until::Count(_) => None,
            Until::Elapsed(time) => Some(self.start() + time),
        }
    }

    /// Sleeps; answers whether the moment came before an interruption.
    pub fn wait_until(&self, moment: Instant) -> bool {
        loop {
            let wait = moment.saturating_duration_since(Instant::now());
            if wait.is_zero() || self.stopped() {
                return wait.is_zero();
            }
            // Slices, so that an interruption is heard.
            thread::sleep(wait.min(GLANCE));
        }
    }

    /// Counts an operation that has ended.
    pub fn tell(&self, succeeded: bool) {
        let counter = if succeeded { &self.ops } else { &self.failed };
        counter.fetch_add(1, Relaxed);
    }

    /// One worker's share of the memory is used up: the round ends for all.
    pub fn fill(&self) {
        self.full.store(true, Relaxed);
    }

    /// Somebody has set the stop flag.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn seen(&self) -> Seen {
        Seen {
            elapsed: self.start().elapsed(),
            ops: self.ops.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}
