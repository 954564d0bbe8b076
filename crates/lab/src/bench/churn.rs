//! `hsmux bench churn`.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use hsmux_bench::churn::{self, ChurnOptions, Programs, runs};

use super::run::{interrupt, verdict};
use crate::context::Context;
use crate::exit::Exit;
use crate::{output, progress};

/// Options of `hsmux bench churn`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux bench churn\n  \
    hsmux bench churn --old-module target/release/libhsmux_standin.so --html churn.html\n  \
    hsmux bench churn --runs 4 --more 500 --time 1s --json\n  \
    hsmux bench churn --workers 4\n\n\
    It creates SoftHSM tokens in a temporary folder and needs no configuration. It compares the module alone \
    with a broker over it: with this host's SoftHSM and, with --old-module, with one that behaves like SoftHSM \
    before 2.4.0, such as hsmux's stand-in module from its tests.")]
pub struct Churn {
    /// SoftHSM's module
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/usr/lib/softhsm/libsofthsm2.so"
    )]
    module: PathBuf,
    /// A module that behaves like SoftHSM before 2.4.0, for comparison
    #[arg(long, value_name = "FILE")]
    old_module: Option<PathBuf>,
    /// The number of published runs to repeat, at most ten
    #[arg(long, value_name = "N", default_value_t = 10)]
    runs: usize,
    /// Further runs, with these numbers of keys
    #[arg(
        long,
        value_name = "N,N,...",
        value_delimiter = ',',
        default_value = "1000,5000"
    )]
    more: Vec<usize>,
    /// Concurrent callers
    #[arg(long, short, default_value_t = 16, value_name = "N")]
    callers: usize,
    /// Length of a plaintext in bytes
    #[arg(long, default_value_t = 256, value_name = "BYTES")]
    payload: usize,
    /// The wait between a change and the measurement
    #[arg(long, value_parser = hsmux_config::parse_duration, default_value = "2s")]
    settle: Duration,
    /// The duration of a measurement, in turns of 250 ms with an unchanged token
    #[arg(long, value_parser = hsmux_config::parse_duration, default_value = "6s")]
    time: Duration,
    /// Worker processes of a broker
    #[arg(long, default_value_t = 2, value_name = "N")]
    workers: usize,
    /// Write a report with a chart to one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Churn {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let stop = interrupt()?;
        let old = self.old_module.as_deref().map(std::path::absolute);
        let old = old.transpose()?;
        let options = ChurnOptions {
            runs: runs(self.runs, &self.more),
            callers: self.callers,
            payload: self.payload,
            settle: self.settle,
            time: self.time,
        };
        let folder = tempfile::Builder::new().prefix("hsmux-churn-").tempdir()?;
        let programs = Programs {
            hsmux: crate::hsmux()?,
            lab: std::env::current_exe()?,
        };
        let spinner = progress::spinner("making tokens");
        let mut ways = churn::ways(
            folder.path(),
            &programs,
            &self.module,
            old.as_deref(),
            self.workers,
            &options,
        )?;
        spinner.finish_and_clear();
        let bar = progress::bar((options.runs.len() * ways.len()) as u64, "");
        let mut first = true;
        let mut next = |what: &str| {
            if !std::mem::take(&mut first) {
                bar.inc(1);
            }
            bar.set_message(what.to_owned());
            !stop.load(Ordering::Relaxed)
        };
        let report = churn::run(&options, &mut ways, &mut next);
        bar.finish_and_clear();
        drop(ways);
        let report = report?;
        let page = self.html.as_deref().map(|file| (file, report.html()));
        output::report(&report, context.json, page.as_ref())?;
        let mut found = report.rows.iter().flat_map(|row| &row.found);
        let failed = found.any(|found| found.failed > 0);
        Ok(verdict(failed, report.interrupted))
    }
}
