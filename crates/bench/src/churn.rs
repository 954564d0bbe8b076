//! The cost of key changes by other programs, after a published table of an HTTP service over SoftHSM.
//! Each [`Way`] takes turns with a twin on an unchanged token: only their ratio counts, since a machine's speed varies.

mod broker;
mod child;
mod load_during;
mod page;
mod part;
mod store;
mod text;
mod ways;

use std::time::Duration;

use hsmux_token::Result;
use serde::{Deserialize, Serialize};

use crate::{ChurnRow, Head, Measurement, reference};

pub use broker::LoadedBroker;
pub use child::{Bare, KeyChangeProcess, KeyChanges};
pub use part::{COMMAND, Keyring, Part};
pub use store::{LABEL, PIN};
pub use store::{Programs, SoftHsmStore};
pub use ways::ways;

/// A service under load.
pub trait LoadedService {
    /// Restarts its process.
    fn restart(&mut self) -> Result<()>;

    /// Runs all callers during `during`, and returns their measurement.
    fn load(&mut self, during: &mut dyn FnMut() -> Result<()>) -> Result<Measurement>;
}

/// A way to do the work.
pub struct Way {
    /// Its name in the report.
    pub name: String,
    /// Whether it restarts where the published service did.
    pub restarts: bool,
    /// The service on the token with changing keys.
    pub subject: Box<dyn LoadedService>,
    /// Changes the keys, from another process.
    pub keys: KeyChangeProcess,
    /// The same service on an unchanged token.
    pub twin: Box<dyn LoadedService>,
}

/// Options of the runs.
#[derive(Clone, Debug)]
pub struct ChurnOptions {
    /// The runs, in their order.
    pub runs: Vec<ChurnRun>,
    /// Concurrent callers.
    pub callers: usize,
    /// Length of a plaintext in bytes.
    pub payload: usize,
    /// The wait between a change and the measurement.
    pub settle: Duration,
    /// The duration of a measurement, in turns of [`TURN`] with the twin: at least two.
    pub time: Duration,
}

/// The duration of a turn: short, since a shared machine's speed drifts. The median of twenty turns resolves
/// a few percent; a single turn may be off by ten.
pub const TURN: Duration = Duration::from_millis(250);

/// One run of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChurnRun {
    /// Its number, from 1.
    pub number: u32,
    /// Keys in the token, including the one in use.
    pub keys: usize,
    /// Whether the published service was restarted before it.
    pub restarted: bool,
    /// The published rate, in requests per second.
    pub published: Option<f64>,
}

/// The first `published` runs of the table, and one more for each of the counts in `more`.
pub fn runs(published: usize, more: &[usize]) -> Vec<ChurnRun> {
    let rows = reference::churn().into_iter().take(published);
    let mut runs: Vec<ChurnRun> = rows.map(ChurnRun::of).collect();
    for &keys in more {
        runs.push(ChurnRun {
            number: runs.len() as u32 + 1,
            keys,
            restarted: false,
            published: None,
        });
    }
    runs
}

impl ChurnRun {
    fn of(row: ChurnRow) -> Self {
        Self {
            number: row.run,
            keys: row.keys,
            restarted: row.restarted,
            published: Some(row.per_second),
        }
    }
}

/// The results. Their JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChurnReport {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// Concurrent callers.
    pub callers: usize,
    /// Length of a plaintext in bytes.
    pub payload: usize,
    /// Seconds between a change and the measurement.
    pub settle_s: f64,
    /// The names of the ways.
    pub ways: Vec<String>,
    /// The runs, in their order.
    pub rows: Vec<RunResults>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// A run, with the results of all ways.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResults {
    /// The run.
    #[serde(flatten)]
    pub run: ChurnRun,
    /// The published rate, relative to the mean of those after a restart.
    pub published_ratio: Option<f64>,
    /// The results in the order of [`ChurnReport::ways`].
    pub found: Vec<WayResult>,
}

/// The result of a way in a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WayResult {
    /// Median over the turns of operations per second.
    pub per_second: f64,
    /// Median over the turns of the ratio to the twin.
    pub ratio: f64,
    /// Failed operations, from before the change to the end of the run.
    pub failed: u64,
    /// The first error, if any.
    pub error: Option<String>,
    /// The longest operation, in microseconds.
    pub longest_us: f64,
    /// Operations per second in each turn, and those of the twin.
    pub turns: Vec<(f64, f64)>,
}

/// Runs the table. `next` gets the following step before each one; it returns whether to continue.
pub fn run(
    options: &ChurnOptions,
    ways: &mut [Way],
    next: &mut dyn FnMut(&str) -> bool,
) -> Result<ChurnReport> {
    let fresh = published_fresh();
    let mut report = ChurnReport {
        head: Head::now("churn"),
        callers: options.callers,
        payload: options.payload,
        settle_s: options.settle.as_secs_f64(),
        ways: ways.iter().map(|way| way.name.clone()).collect(),
        rows: Vec::new(),
        interrupted: false,
    };
    for run in &options.runs {
        let mut found = Vec::new();
        for way in &mut *ways {
            if !next(&format!("run {}: {}", run.number, way.name)) {
                report.interrupted = true;
                return Ok(report);
            }
            let done = way.run(run, options);
            found.push(done.map_err(|e| e.at(format_args!("run {}, {}", run.number, way.name)))?);
        }
        report.rows.push(RunResults {
            run: *run,
            published_ratio: run.published.map(|rate| rate / fresh),
            found,
        });
    }
    Ok(report)
}

/// The mean of the published rates after a restart.
fn published_fresh() -> f64 {
    let rows = reference::churn();
    let fresh = rows.iter().filter(|row| row.restarted);
    let rates: Vec<f64> = fresh.map(|row| row.per_second).collect();
    rates.iter().sum::<f64>() / rates.len() as f64
}

impl Way {
    fn run(&mut self, run: &ChurnRun, options: &ChurnOptions) -> Result<WayResult> {
        let keys = run.keys.saturating_sub(1);
        let mut seen = Vec::new();
        if self.restarts && run.restarted {
            self.keys.bring_to(keys)?;
            self.subject.restart()?;
        } else {
            let (changing, settle) = (&mut self.keys, options.settle);
            seen.push(self.subject.load(&mut || {
                changing.bring_to(keys)?;
                std::thread::sleep(settle);
                Ok(())
            })?);
        }
        let mut pass = || {
            std::thread::sleep(TURN);
            Ok(())
        };
        let count = options.time.as_millis() / TURN.as_millis();
        let mut turns = Vec::new();
        for number in 0..count.max(2) {
            // The order alternates, because the first or the second may have an advantage.
            let twin_first = (number % 2 == 1).then(|| self.twin.load(&mut pass));
            let own = self.subject.load(&mut pass)?;
            let twin = twin_first.unwrap_or_else(|| self.twin.load(&mut pass))?;
            turns.push((own.per_second, twin.per_second));
            seen.extend([own, twin]);
        }
        Ok(WayResult::new(turns, &seen))
    }
}

impl WayResult {
    fn new(turns: Vec<(f64, f64)>, seen: &[Measurement]) -> Self {
        let median = |value: fn(&(f64, f64)) -> f64| {
            let values = turns.iter().map(value).filter(|value| value.is_finite());
            crate::compare::median(values.collect()).unwrap_or(0.0)
        };
        let longest = seen.iter().filter_map(|one| Some(one.latency_us?.max));
        let mut faults = seen.iter().flat_map(|one| &one.faults);
        Self {
            per_second: median(|turn| turn.0),
            ratio: median(|turn| turn.0 / turn.1),
            failed: seen.iter().map(|one| one.failed).sum(),
            error: faults.next().map(|fault| fault.message.clone()),
            longest_us: longest.fold(0.0, f64::max),
            turns,
        }
    }
}
