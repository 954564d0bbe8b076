//! A table of measurements of a web server over TLS, beside published figures. A cell is the best of several runs.
//! Finished runs are saved, so that the same command resumes after an interruption.

mod page;
mod plan;
mod state;
mod system;
mod text;

use std::path::{Path, PathBuf};

use hsmux_token::Result;
use serde::{Deserialize, Serialize};

use crate::tls::{self, Figures, Times, TlsParameters};
use crate::{Head, Process, RunControl, TlsRow, reference};

pub use plan::{Cell, ClientSettings, Plan};
use state::MatrixState;
use system::System;

/// Options of a table.
#[derive(Clone, Debug)]
pub struct MatrixOptions {
    /// The table.
    pub plan: Plan,
    /// The file of the results so far; created if missing.
    pub state: PathBuf,
    /// Whether to discard earlier results.
    pub restart: bool,
}

/// One run of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellRun {
    /// Its end (RFC 3339, UTC).
    pub measured_at: String,
    /// The parameters of the first handshake.
    pub tls: TlsParameters,
    /// Siege's twelve figures.
    pub figures: Figures,
    /// Unfinished requests at the end.
    pub unfinished: u64,
    /// Handshakes and durations.
    pub times: Times,
    /// CPU and memory of the client and the system under test.
    pub processes: Vec<Process>,
}

/// A cell, with its results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatrixRow {
    /// The cell.
    pub cell: Cell,
    /// The published run of the same set-up, if there is one.
    pub published: Option<TlsRow>,
    /// All runs, in their order.
    pub runs: Vec<CellRun>,
    /// The index of the one with the highest rate.
    pub best: Option<usize>,
    /// The error that prevented the measurement.
    pub error: Option<String>,
}

/// The table. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatrixReport {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// Runs for each cell.
    pub best_of: usize,
    /// The cells, in their order.
    pub rows: Vec<MatrixRow>,
    /// Remaining runs.
    pub left: usize,
}

/// The next step.
#[derive(Clone, Copy, Debug)]
pub struct MatrixStep<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Its number, from 1.
    pub number: usize,
    /// The number of cells.
    pub of: usize,
    /// Remaining runs, including this one.
    pub left: usize,
    /// Their duration in seconds, without starts of the system under test.
    pub left_s: f64,
}

/// Measures what is missing. `next` gets each run before it starts.
pub fn run(
    options: &MatrixOptions,
    control: RunControl<'_>,
    next: &dyn Fn(&MatrixStep<'_>),
) -> Result<MatrixReport> {
    let mut state = MatrixState::open(&options.state, options.restart)?;
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
                    // A failed system may be half alive, so it is restarted.
                    system = None;
                    break;
                }
            }
        }
    }
    drop(system);
    let rows: Vec<MatrixRow> = cells
        .iter()
        .zip(errors)
        .map(|(cell, error)| MatrixRow::new(cell, state.runs(cell), error))
        .collect();
    Ok(MatrixReport {
        head: Head::now("matrix"),
        best_of: options.plan.best_of,
        left: left(options, &state, 0).count(),
        rows,
    })
}

/// One run; `None` if interrupted.
fn measure(
    cell: &Cell,
    system: &mut Option<System>,
    state: &Path,
    control: RunControl<'_>,
) -> Result<Option<CellRun>> {
    if !system.as_ref().is_some_and(|system| system.serves(cell)) {
        // The previous system ends first: both may need the same port.
        drop(system.take());
        *system = Some(System::start(cell, state, control)?);
    }
    if control.stopped() {
        return Ok(None);
    }
    let mut options = cell.options()?;
    options.processes = system.iter().filter_map(System::id).collect();
    let report = tls::run(&options, control)?;
    Ok((!report.measurement.interrupted).then_some(CellRun {
        measured_at: report.head.measured_at,
        tls: report.tls,
        figures: report.figures,
        unfinished: report.unfinished,
        times: report.times,
        processes: report.measurement.processes,
    }))
}

/// The cells of the remaining runs, from this index.
fn left<'a>(
    options: &'a MatrixOptions,
    state: &'a MatrixState,
    from: usize,
) -> impl Iterator<Item = &'a Cell> {
    options.plan.cells[from..].iter().flat_map(|cell| {
        let missing = options.plan.best_of.saturating_sub(state.runs(cell).len());
        std::iter::repeat_n(cell, missing)
    })
}

fn step<'a>(options: &'a MatrixOptions, state: &'a MatrixState, at: usize) -> MatrixStep<'a> {
    MatrixStep {
        cell: &options.plan.cells[at],
        number: at + 1,
        of: options.plan.cells.len(),
        left: left(options, state, at).count(),
        left_s: left(options, state, at).map(Cell::seconds).sum(),
    }
}

impl MatrixRow {
    fn new(cell: &Cell, runs: &[CellRun], error: Option<String>) -> Self {
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

/// The published run of the same set-up: with the cell's module, or the fastest of any.
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
