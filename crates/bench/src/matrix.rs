//! A table of measurements of a web server over TLS: keys, numbers of tokens, modules, pages and users, each
//! cell the best of some runs, beside what was published.
//!
//! A cell is on record as soon as a run of it is finished: interrupted, the same command goes on where it
//! was. The system under test is whatever a command starts.

mod page;
mod plan;
mod state;
mod system;
mod text;

use std::path::{Path, PathBuf};

use hsmux_token::Result;
use serde::{Deserialize, Serialize};

use crate::tls::{self, Figures, Seen, Times};
use crate::{Control, Head, Process, TlsRow, reference};

pub use plan::{Cell, Client, Plan};
use state::State;
use system::System;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// The table.
    pub plan: Plan,
    /// What was found so far; it is made if it is not there.
    pub state: PathBuf,
    /// Whether what it has is forgotten.
    pub restart: bool,
}

/// One run of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// When it ended (RFC 3339, UTC).
    pub measured_at: String,
    /// What the first handshake came to.
    pub tls: Seen,
    /// Siege's twelve figures.
    pub figures: Figures,
    /// Requests that were under way at the end.
    pub unfinished: u64,
    /// Handshakes, and what took how long.
    pub times: Times,
    /// What the client and the system under test cost.
    pub processes: Vec<Process>,
}

/// A cell, and what was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub cell: Cell,
    /// What was published of as much; nothing where that was not measured.
    pub published: Option<TlsRow>,
    /// All runs, in their order.
    pub runs: Vec<Run>,
    /// The index of the one with the highest rate.
    pub best: Option<usize>,
    /// Why it could not be measured.
    pub error: Option<String>,
}

/// The table. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// Runs of each cell.
    pub best_of: usize,
    /// The cells, in their order.
    pub rows: Vec<Row>,
    /// Runs that are still to be done.
    pub left: usize,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Its number, from 1.
    pub number: usize,
    /// How many cells there are.
    pub of: usize,
    /// Runs that are still to be done, with this one.
    pub left: usize,
    /// Seconds that these take, without starting what is measured.
    pub left_s: f64,
}

/// Measures what is not on record yet. `next` is told before each run what comes.
pub fn run(options: &Options, control: Control<'_>, next: &dyn Fn(&Step<'_>)) -> Result<Report> {
    let mut state = State::open(&options.state, options.restart)?;
    let cells = &options.plan.cells;
    let mut errors: Vec<Option<String>> = vec![None; cells.len()];
    let mut system: Option<System> = None;
    for (at, cell) in cells.iter().enumerate() {
        while state.runs(cell).len() < options.plan.best_of && !control.stopped() {
            next(&step(options, &state, at));
            let measured = measure(cell, &mut system, &options.state, control);
            match measured {
                Ok(Some(run)) => state.add(cell, run, &options.state)?,
                Ok(None) => break,
                Err(error) => {
                    errors[at] = Some(error.to_string());
                    // What has failed may leave something half alive.
                    system = None;
                    break;
                }
            }
        }
    }
    drop(system);
    let rows: Vec<Row> = cells
        .iter()
        .zip(errors)
        .map(|(cell, error)| Row::new(cell, state.runs(cell), error))
        .collect();
    Ok(Report {
        head: Head::now("matrix"),
        best_of: options.plan.best_of,
        left: left(options, &state, 0).count(),
        rows,
    })
}

/// One run; nothing if it was interrupted.
fn measure(
    cell: &Cell,
    system: &mut Option<System>,
    state: &Path,
    control: Control<'_>,
) -> Result<Option<Run>> {
    if !system.as_ref().is_some_and(|system| system.serves(cell)) {
        // The old one first: both may want the same port.
        drop(system.take());
        *system = Some(System::start(cell, state, control)?);
    }
    if control.stopped() {
        return Ok(None);
    }
    let mut options = cell.options()?;
    options.processes = system.iter().filter_map(System::id).collect();
    let report = tls::run(&options, control)?;
    Ok((!report.measurement.interrupted).then_some(Run {
        measured_at: report.head.measured_at,
        tls: report.tls,
        figures: report.figures,
        unfinished: report.unfinished,
        times: report.times,
        processes: report.measurement.processes,
    }))
}

/// The cells of the runs that are to be done, from the one at this index.
fn left<'a>(options: &'a Options, state: &'a State, from: usize) -> impl Iterator<Item = &'a Cell> {
    options.plan.cells[from..].iter().flat_map(|cell| {
        let missing = options.plan.best_of.saturating_sub(state.runs(cell).len());
        std::iter::repeat_n(cell, missing)
    })
}

fn step<'a>(options: &'a Options, state: &'a State, at: usize) -> Step<'a> {
    Step {
        cell: &options.plan.cells[at],
        number: at + 1,
        of: options.plan.cells.len(),
        left: left(options, state, at).count(),
        left_s: left(options, state, at).map(Cell::seconds).sum(),
    }
}

impl Row {
    fn new(cell: &Cell, runs: &[Run], error: Option<String>) -> Self {
        let rates = runs.iter().map(|run| run.figures.rate_per_s).enumerate();
        let best = rates.max_by(|one, other| one.1.total_cmp(&other.1));
        Self {
            cell: cell.clone(),
            published: published(cell),
            runs: runs.to_vec(),
            best: best.map(|(at, _)| at),
            error,
        }
    }

    /// The figures of the best run.
    pub fn figures(&self) -> Option<&Figures> {
        Some(&self.runs.get(self.best?)?.figures)
    }

    /// The measured rate over the published one.
    pub fn ratio(&self) -> Option<f64> {
        let published = self.published.as_ref()?.figures.rate_per_s;
        let ratio = self.figures()?.rate_per_s / published;
        ratio.is_finite().then_some(ratio)
    }
}

/// The published run of as much: that of the cell's module, or the fastest one of any module.
fn published(cell: &Cell) -> Option<TlsRow> {
    let alike = reference::siege_table().into_iter().filter(|row| {
        (&row.setup, &row.key, &row.page) == (&cell.published, &cell.key, &cell.page)
            && (row.hsms, row.users as usize) == (cell.hsms, cell.users)
            && (row.think_s - cell.think_s).abs() < 1e-9
    });
    let rank = |row: &TlsRow| (row.module == cell.module, row.figures.rate_per_s);
    alike.max_by(|one, other| {
        let ((own, rate), (others, than)) = (rank(one), rank(other));
        own.cmp(&others).then(rate.total_cmp(&than))
    })
}
