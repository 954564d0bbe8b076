//! `hsmux bench churn`.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hsmux_bench::churn::{self, Options, Programs, runs};

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
    hsmux bench churn --isolation thread\n\n\
    It makes SoftHSM tokens in a temporary folder and needs no configuration. Two ways to the key, the module \
    alone and a broker over it, over SoftHSM as it is here and, with --old-module, over one that behaves as it \
    did before 2.4.0: such a SoftHSM itself, or hsmux's stand-in for it, which its tests build and nobody \
    installs.")]
pub struct Churn {
    /// SoftHSM's module
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/usr/lib/softhsm/libsofthsm2.so"
    )]
    module: PathBuf,
    /// A module that behaves as SoftHSM before 2.4.0, beside it
    #[arg(long, value_name = "FILE")]
    old_module: Option<PathBuf>,
    /// How many of the ten published runs
    #[arg(long, value_name = "N", default_value_t = 10)]
    runs: usize,
    /// Further runs, with so many keys
    #[arg(
        long,
        value_name = "N,N,...",
        value_delimiter = ',',
        default_value = "1000,5000"
    )]
    more: Vec<usize>,
    /// Callers at the same time
    #[arg(long, short, default_value_t = 16, value_name = "N")]
    callers: usize,
    /// Bytes of a plaintext
    #[arg(long, default_value_t = 256, value_name = "BYTES")]
    payload: usize,
    /// How long after a change a run is measured
    #[arg(long, value_parser = hsmux_config::parse_duration, default_value = "2s")]
    settle: Duration,
    /// How long a run is measured, in turns of 250 ms with a token that nobody changes
    #[arg(long, value_parser = hsmux_config::parse_duration, default_value = "6s")]
    time: Duration,
    /// Where a broker has its module: in worker processes, or in itself
    #[arg(long, value_enum, value_name = "WHERE", default_value = "process")]
    isolation: Isolation,
    /// Worker processes of a broker
    #[arg(long, default_value_t = 2, value_name = "N")]
    workers: usize,
    /// Write a report with a chart, one HTML file that needs no other
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// As `isolation` of a `[[token]]`.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Isolation {
    Process,
    Thread,
}

impl Churn {
    fn isolation(&self) -> churn::Isolation {
        match self.isolation {
            Isolation::Process => churn::Isolation::Workers(self.workers),
            Isolation::Thread => churn::Isolation::Thread,
        }
    }

    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let stop = interrupt()?;
        let old = self.old_module.as_deref().map(std::path::absolute);
        let old = old.transpose()?;
        let options = Options {
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
            self.isolation(),
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
