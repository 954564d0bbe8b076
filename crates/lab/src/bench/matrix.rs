//! `hsmux bench matrix`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hsmux_bench::matrix::{self, MatrixOptions, MatrixRow, MatrixStep, Plan};

use super::run::{interrupt, watched_steps};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux bench matrix`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    hsmux bench matrix cluster.toml --html cluster.html\n\n\
    cluster.toml:\n  \
    best_of = 3\n  \
    [client]\n  \
    time = \"30s\"\n  \
    ca = \"ca.pem\"\n  \
    [pages.static]\n  \
    url = \"https://127.0.0.1:8443/hello.txt\"\n  \
    [[cells]]\n  \
    key = [\"rsa-2048\", \"ec-prime256v1\"]\n  \
    hsms = [1, 2, 3]\n  \
    module = \"sc-hsm-embedded\"\n  \
    page = \"static\"\n  \
    load = [{ users = 20, think = \"5s\" }, { users = 60 }]\n  \
    start = \"./cluster.sh\"   # gets the cell in HSMUX_KEY, HSMUX_HSMS, HSMUX_MODULE and HSMUX_PAGE\n\n\
    Results are saved in the state file after each run. After an interruption the same command resumes; after\n\
    the end it prints the report again. docs/bench.md describes the file.\n\
    Exit code 1 if a cell could not be measured, 3 if runs remain.")]
pub struct Matrix {
    /// The table of cells, TOML
    file: PathBuf,
    /// The file of the results so far
    #[arg(long, default_value = "hsmux-matrix.json", value_name = "FILE")]
    state: PathBuf,
    /// Discard the results in the state file
    #[arg(long)]
    restart: bool,
    /// Write a report with charts to one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Matrix {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let stop = interrupt()?;
        let plan = Plan::read(&self.file).map_err(|e| Exit::Usage.because(e.to_string()))?;
        let options = MatrixOptions {
            plan,
            state: self.state,
            restart: self.restart,
        };
        let report = watched_steps(&stop, |control, say| {
            matrix::run(&options, control, &|step| say(&step_text(step)))
        })?;
        let page = self.html.as_deref().map(|file| (file, report.html()));
        output::report(&report, context.json, page.as_ref())?;
        let failed = |row: &MatrixRow| row.error.is_some();
        Ok(match report.left {
            0 => Exit::Done,
            _ if report.rows.iter().any(failed) => Exit::Failed,
            _ => Exit::Degraded,
        })
    }
}

/// `cell 3 of 24, ...: 12 runs left, about 6m`.
fn step_text(step: &MatrixStep<'_>) -> String {
    let left = Duration::from_secs_f64(step.left_s.ceil());
    format!(
        "cell {} of {}, {}: {} runs left, about {}",
        step.number,
        step.of,
        step.cell,
        step.left,
        humantime::format_duration(left)
    )
}
