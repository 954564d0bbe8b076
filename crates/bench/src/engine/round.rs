//! One round: all workers from a common start to a common end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::worker::{self, Tally};
use super::{LoadModel, Phase, Plan, Progress, RunControl, Until, Workload, waiting};

/// The memory limit for all workers of a round. When it is reached, the round ends,
/// its answers are checked, and another round begins.
const MEMORY: usize = 128 << 20;

/// The interval of progress reports.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The parameters of a round.
pub struct Setup<'a> {
    pub plan: &'a Plan,
    pub until: Until,
    pub control: RunControl<'a>,
    pub work: Workload<'a>,
    /// Whether answers are kept for checks.
    pub keeps: bool,
    pub phase: Phase,
}

/// The progress of a running round.
#[derive(Clone, Copy, Default)]
pub struct RoundProgress {
    /// Time since the start of the round.
    pub elapsed: Duration,
    pub ops: u64,
    pub failed: u64,
}

/// The result of a round.
pub struct RoundResult {
    /// The tallies of all threads.
    pub tallies: Vec<Tally>,
    /// Whether the memory limit ended it before its work was done.
    pub full: bool,
}

/// Runs a round; calls `on_sample` about ten times a second on the caller's thread.
pub fn run(setup: &Setup<'_>, mut on_sample: impl FnMut(RoundProgress)) -> RoundResult {
    let workers = setup.plan.load.workers();
    let threads = setup.work.threads(workers);
    let round = RoundState::new(setup);
    let barrier = Barrier::new(threads + 1);
    let tallies = thread::scope(|scope| {
        // Nothing is sent: the last worker closes the channel, which ends the wait.
        let (working, ended) = mpsc::channel::<()>();
        let running: Vec<_> = (0..threads)
            .map(|index| {
                let (round, barrier, work) = (&round, &barrier, setup.work);
                let working = working.clone();
                scope.spawn(move || {
                    let _working = working;
                    match work {
                        Workload::Blocking(run) => {
                            let tally = Tally::ready();
                            barrier.wait();
                            worker::work(index, round, run, tally)
                        }
                        Workload::Waiting(callers, ending) => {
                            let own = (index..workers).step_by(threads);
                            waiting::work(own, round, callers, ending, barrier)
                        }
                    }
                })
            })
            .collect();
        drop(working);
        barrier.wait();
        round.start();
        while ended.recv_timeout(SAMPLE_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            let seen = round.seen();
            on_sample(seen);
            (setup.control.progress)(&Progress::of(setup, seen));
        }
        on_sample(round.seen());
        running
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    let full = round.full.load(Relaxed);
    RoundResult { tallies, full }
}

/// Shared state of the workers.
pub struct RoundState<'a> {
    pub load: LoadModel,
    pub keeps: bool,
    /// The memory limit of one worker, in bytes.
    pub share: usize,
    until: Until,
    stop: &'a AtomicBool,
    start: OnceLock<Instant>,
    next: AtomicU64,
    ops: AtomicU64,
    failed: AtomicU64,
    full: AtomicBool,
}

impl<'a> RoundState<'a> {
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

    /// The start of the round.
    pub fn start(&self) -> Instant {
        *self.start.get_or_init(Instant::now)
    }

    /// The number of the next operation, if any.
    pub fn next_operation(&self) -> Option<u64> {
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

    /// The end of the round, if limited by time.
    pub fn end(&self) -> Option<Instant> {
        match self.until {
            Until::Count(_) => None,
            Until::Elapsed(time) => Some(self.start() + time),
        }
    }

    /// Sleeps until `moment`; returns `false` if interrupted before.
    pub fn wait_until(&self, moment: Instant) -> bool {
        loop {
            let wait = moment.saturating_duration_since(Instant::now());
            if wait.is_zero() || self.stopped() {
                return wait.is_zero();
            }
            // In slices, to notice an interruption.
            thread::sleep(wait.min(SAMPLE_INTERVAL));
        }
    }

    /// Counts a finished operation.
    pub fn tell(&self, succeeded: bool) {
        let counter = if succeeded { &self.ops } else { &self.failed };
        counter.fetch_add(1, Relaxed);
    }

    /// Ends the round for all, because one worker's memory is used up.
    pub fn fill(&self) {
        self.full.store(true, Relaxed);
    }

    /// Whether the stop flag is set.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn seen(&self) -> RoundProgress {
        RoundProgress {
            elapsed: self.start().elapsed(),
            ops: self.ops.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}
