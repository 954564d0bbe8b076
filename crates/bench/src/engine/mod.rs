//! The measuring engine of all benchmarks: a warm-up, then rounds. In a round workers only run the operation;
//! answers are checked between rounds, so that checks cost the measurement nothing. Most runs are one round.

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

pub(crate) use check::CheckCounts;
pub use progress::{Phase, Progress};
pub(crate) use round::RoundProgress;
pub use waiting::{AsyncCaller, AsyncCallers, CallerFuture, Ending};
pub(crate) use worker::Tally;

/// The start of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadModel {
    /// Each worker starts an operation when its last one has ended. This finds the target's maximum,
    /// but a stalled target gets fewer operations, and so looks better than to its users.
    Closed {
        /// Workers, a thread each.
        workers: usize,
    },
    /// Operations start at fixed times, independent of earlier ones. A latency counts from the intended start
    /// (no coordinated omission).
    Open {
        /// Operations per second over all workers.
        per_second: f64,
        /// Workers, a thread each, which limit concurrent operations.
        workers: usize,
    },
}

impl LoadModel {
    /// The number of workers.
    pub const fn workers(self) -> usize {
        match self {
            Self::Closed { workers } | Self::Open { workers, .. } => workers,
        }
    }
}

/// The end of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this number of operations.
    Count(u64),
    /// After this time.
    Elapsed(Duration),
}

/// The plan of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The start of operations.
    pub load: LoadModel,
    /// When to end.
    pub until: Until,
    /// The duration of the same load before the measurement. Each worker runs at least one operation, unless it is
    /// zero.
    pub warm_up: Duration,
    /// Other processes to account for, each with its descendants.
    pub processes: Vec<u32>,
}

/// The operation, by its worker's index.
pub type WorkerOperation<'a> = dyn Fn(usize) -> Result<Bytes> + Sync + 'a;

/// Checks an answer, by its worker's index.
pub type Check<'a> = dyn Fn(usize, &[u8]) -> Result<()> + Sync + 'a;

/// Progress and interruption of a run.
#[derive(Clone, Copy)]
pub struct RunControl<'a> {
    /// Set it to end the run; the results so far are kept.
    pub stop: &'a AtomicBool,
    /// Called about ten times a second, on the thread that called [`measure`].
    pub progress: &'a dyn Fn(&Progress),
}

impl<'a> RunControl<'a> {
    /// Without progress.
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

/// How workers run their operations.
#[derive(Clone, Copy)]
enum Workload<'a> {
    /// Each on its own thread.
    Blocking(&'a WorkerOperation<'a>),
    /// As futures, on a few threads.
    Waiting(&'a AsyncCallers<'a>, Ending),
}

impl Workload<'_> {
    /// The number of threads for the workers. Futures leave half of the machine to the target, which often runs on it.
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
    control: RunControl<'_>,
    run: &WorkerOperation<'_>,
    check: Option<&Check<'_>>,
) -> Measurement {
    measure_workload(plan, control, Workload::Blocking(run), check)
}

/// The same with workers that are futures, and check answers themselves.
pub fn measure_waiting<'a>(
    plan: &'a Plan,
    control: RunControl<'a>,
    callers: &'a AsyncCallers<'a>,
    ending: Ending,
) -> Measurement {
    measure_workload(plan, control, Workload::Waiting(callers, ending), None)
}

fn measure_workload<'a>(
    plan: &'a Plan,
    control: RunControl<'a>,
    work: Workload<'a>,
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

/// The rest of the plan.
fn left(until: Until, sum: &Sum) -> Until {
    match until {
        Until::Count(count) => Until::Count(count.saturating_sub(sum.ops + sum.failed)),
        Until::Elapsed(time) => Until::Elapsed(time.saturating_sub(sum.elapsed)),
    }
}
