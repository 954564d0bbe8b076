//! The measuring engine that every benchmark shares.
//!
//! A run is a warm-up and then rounds. In a round the workers do nothing but the operation; between
//! rounds every answer is checked. So checking costs neither latency nor throughput nor CPU of what
//! is measured, and a run of any length needs little memory. Most runs are one round.

mod check;
mod progress;
mod round;
mod waiting;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hsmux_token::Result;

use crate::measurement::{Measurement, Sum};
use crate::processes::Accounts;

pub(crate) use check::Checked;
pub use progress::{Phase, Progress};
pub(crate) use round::Seen;
pub use waiting::{Caller, Callers, Ending, Later};
pub(crate) use worker::Tally;

/// How the operations are started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Each worker starts the next operation when its last one has ended. Says what the target can
    /// do, but a target that stalls is asked less, and so looks better than its users find it.
    Closed {
        /// Workers, a thread each.
        workers: usize,
    },
    /// Operations start at fixed times, whatever became of the earlier ones; a latency counts from
    /// the intended start (no coordinated omission).
    Open {
        /// Operations per second over all workers.
        per_second: f64,
        /// Workers, a thread each: more operations than that are never under way at once.
        workers: usize,
    },
}

impl Load {
    /// The threads that it takes.
    pub const fn workers(self) -> usize {
        match self {
            Self::Closed { workers } | Self::Open { workers, .. } => workers,
        }
    }
}

/// When enough has been measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many operations.
    Count(u64),
    /// After so much time.
    Elapsed(Duration),
}

/// What is measured, for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How the operations are started.
    pub load: Load,
    /// When to end.
    pub until: Until,
    /// The same load before the measurement; nothing of it counts. Each worker does one operation at
    /// least, unless it is zero.
    pub warm_up: Duration,
    /// The processes to account for beside this one, each with all that descend from it.
    pub processes: Vec<u32>,
}

/// The operation, by the index of the worker that does it.
pub type Run<'a> = dyn Fn(usize) -> Result<Bytes> + Sync + 'a;

/// Whether an answer is right, by the index of the worker that got it.
pub type Check<'a> = dyn Fn(usize, &[u8]) -> Result<()> + Sync + 'a;

/// How a run is watched and ended from outside.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Set it to end the run; what was measured is kept.
    pub stop: &'a AtomicBool,
    /// Called some ten times a second, on the thread that called [`measure`].
    pub progress: &'a dyn Fn(&Progress),
}

impl<'a> Control<'a> {
    /// Nobody watches.
    pub(crate) const fn unseen(stop: &'a AtomicBool) -> Self {
        Self {
            stop,
            progress: &|_| {},
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// How the workers do their operations.
#[derive(Clone, Copy)]
enum Work<'a> {
    /// Each on a thread of its own.
    Blocking(&'a Run<'a>),
    /// As futures, on a few threads.
    Waiting(&'a Callers<'a>, Ending),
}

impl Work<'_> {
    /// The threads that so many workers take. Those that wait leave half of the machine to what is
    /// measured: it often runs on the same one.
    fn threads(self, workers: usize) -> usize {
        match self {
            Self::Blocking(_) => workers,
            Self::Waiting(..) => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                workers.min((cores / 2).max(1))
            }
        }
    }
}

/// Runs the plan. Errors of operations are counted, not returned.
pub fn measure(
    plan: &Plan,
    control: Control<'_>,
    run: &Run<'_>,
    check: Option<&Check<'_>>,
) -> Measurement {
    measure_work(plan, control, Work::Blocking(run), check)
}

/// The same with workers that wait as futures, and see themselves whether an answer is right.
pub fn measure_waiting<'a>(
    plan: &'a Plan,
    control: Control<'a>,
    callers: &'a Callers<'a>,
    ending: Ending,
) -> Measurement {
    measure_work(plan, control, Work::Waiting(callers, ending), None)
}

fn measure_work<'a>(
    plan: &'a Plan,
    control: Control<'a>,
    work: Work<'a>,
    check: Option<&Check<'_>>,
) -> Measurement {
    if !plan.warm_up.is_zero() && !control.stopped() {
        let until = Until::Elapsed(plan.warm_up);
        round::run(
            &round::Setup {
                plan,
                until,
                control,
                work,
                keeps: false,
                phase: Phase::WarmUp,
            },
            |_| {},
        );
    }
    let mut accounts = Accounts::open(&plan.processes);
    let mut sum = Sum::default();
    let mut more = true;
    while more && !control.stopped() {
        let until = left(plan.until, &sum);
        let setup = round::Setup {
            plan,
            until,
            control,
            work,
            keeps: check.is_some(),
            phase: Phase::Measure,
        };
        accounts.resume();
        let began = Instant::now();
        let ended = round::run(&setup, |seen| {
            accounts.sample(began.elapsed());
            sum.watch(seen);
        });
        accounts.pause();
        sum.add(&ended.tallies);
        if let Some(check) = check {
            sum.checked(&check::all(&ended.tallies, check, control));
        }
        more = ended.full;
    }
    Measurement::new(plan, &sum, accounts.close(sum.elapsed), control.stopped())
}

/// What remains to be done.
fn left(until: Until, sum: &Sum) -> Until {
    match until {
        Until::Count(count) => Until::Count(count.saturating_sub(sum.ops + sum.failed)),
        Until::Elapsed(time) => Until::Elapsed(time.saturating_sub(sum.elapsed)),
    }
}
