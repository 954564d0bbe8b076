//! What it costs that other programs add and remove keys: the published table, repeated.
//!
//! The table is of a threaded HTTP service over SoftHSM whose throughput fell when the keys of its token
//! changed, until it was restarted. Its runs are repeated by several [`Way`]s to the same work, each on a
//! token of its own whose keys another process changes. A run changes the keys while callers work, lets
//! two seconds go by, and then measures. Absolute rates swing on a shared machine; what counts is the ratio
//! to a twin: the same way, fresh, to a token that nobody changes, measured in turns with it.

mod broker;
mod child;
mod meanwhile;
mod page;
mod part;
mod store;
mod text;
mod ways;

use std::time::Duration;

use hsmux_token::Result;
use serde::{Deserialize, Serialize};

use crate::{ChurnRow, Head, Measurement, reference};

pub use broker::Broker;
pub use child::{Bare, Changing, Keys};
pub use part::{COMMAND, Keyring, Part};
pub use store::{Isolation, Programs, Store};
pub use store::{LABEL, PIN};
pub use ways::ways;

/// What serves the callers.
pub trait Serves {
    /// Ends its process and starts it anew.
    fn restart(&mut self) -> Result<()>;

    /// Has all callers work while `during` runs, and answers what they did.
    fn load(&mut self, during: &mut dyn FnMut() -> Result<()>) -> Result<Measurement>;
}

/// A way to do the work.
pub struct Way {
    /// What the report calls it.
    pub name: String,
    /// Whether it is restarted where the published service was: one that needs no restart gets none.
    pub restarts: bool,
    /// The one whose keys change.
    pub subject: Box<dyn Serves>,
    /// Changes them, from another process.
    pub keys: Keys,
    /// The same way to a token that nobody changes.
    pub twin: Box<dyn Serves>,
}

/// How the runs go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The runs, in their order.
    pub runs: Vec<Run>,
    /// Callers at the same time.
    pub callers: usize,
    /// Bytes of a plaintext.
    pub payload: usize,
    /// How long after a change a run is measured.
    pub settle: Duration,
    /// How long a run is measured, in turns with its twin that take [`TURN`] each: at least two.
    pub time: Duration,
}

/// How long the one whose keys change works before its twin has its turn: less than a shared machine stays as slow or
/// as fast as it is. Of twenty the median tells a few per cent; a single one is off by ten.
pub const TURN: Duration = Duration::from_millis(250);

/// One run of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// From 1.
    pub number: u32,
    /// Keys in the token, with the one in use.
    pub keys: usize,
    /// Whether the published service was restarted before it.
    pub restarted: bool,
    /// The published rate, in requests per second.
    pub published: Option<f64>,
}

/// The first so many published runs, and one more for each of these counts of keys.
pub fn runs(published: usize, more: &[usize]) -> Vec<Run> {
    let rows = reference::churn().into_iter().take(published);
    let mut runs: Vec<Run> = rows.map(Run::of).collect();
    for &keys in more {
        runs.push(Run {
            number: runs.len() as u32 + 1,
            keys,
            restarted: false,
            published: None,
        });
    }
    runs
}

impl Run {
    fn of(row: ChurnRow) -> Self {
        Self {
            number: row.run,
            keys: row.keys,
            restarted: row.restarted,
            published: Some(row.per_second),
        }
    }
}

/// What the runs found. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// Callers at the same time.
    pub callers: usize,
    /// Bytes of a plaintext.
    pub payload: usize,
    /// Seconds after a change before a run was measured.
    pub settle_s: f64,
    /// The ways, by name.
    pub ways: Vec<String>,
    /// Every run, in its order.
    pub rows: Vec<Row>,
    /// Whether it was ended before its time.
    pub interrupted: bool,
}

/// A run, and what the ways did in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    #[serde(flatten)]
    pub run: Run,
    /// The published rate over the mean of those after a restart.
    pub published_ratio: Option<f64>,
    /// In the order of [`Report::ways`].
    pub found: Vec<Found>,
}

/// What a way did in a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Found {
    /// Median over the turns of operations per second.
    pub per_second: f64,
    /// Median over the turns of the ratio to the twin.
    pub ratio: f64,
    /// Operations that failed, from before the change to the end of the run.
    pub failed: u64,
    /// The first error, if there was one.
    pub error: Option<String>,
    /// The longest that an operation took meanwhile, in microseconds.
    pub longest_us: f64,
    /// Each turn: operations per second, and those of the twin.
    pub turns: Vec<(f64, f64)>,
}

/// Runs the table. `next` is told before each step what comes; it answers whether to go on.
pub fn run(
    options: &Options,
    ways: &mut [Way],
    next: &mut dyn FnMut(&str) -> bool,
) -> Result<Report> {
    let fresh = published_fresh();
    let mut report = Report {
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
        report.rows.push(Row {
            run: *run,
            published_ratio: run.published.map(|rate| rate / fresh),
            found,
        });
    }
    Ok(report)
}

/// The published rate after a restart.
fn published_fresh() -> f64 {
    let rows = reference::churn();
    let fresh = rows.iter().filter(|row| row.restarted);
    let rates: Vec<f64> = fresh.map(|row| row.per_second).collect();
    rates.iter().sum::<f64>() / rates.len() as f64
}

impl Way {
    fn run(&mut self, run: &Run, options: &Options) -> Result<Found> {
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
            // Who begins has the warmer machine, or the colder one.
            let twin_first = (number % 2 == 1).then(|| self.twin.load(&mut pass));
            let own = self.subject.load(&mut pass)?;
            let twin = twin_first.unwrap_or_else(|| self.twin.load(&mut pass))?;
            turns.push((own.per_second, twin.per_second));
            seen.extend([own, twin]);
        }
        Ok(Found::new(turns, &seen))
    }
}

impl Found {
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
