//! One measurement: its options, its progress, its interruption.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use hsmux_bench::sign::SignOptions;
use hsmux_bench::{BenchKey, LoadModel, Phase, Progress, RunControl, Until, mechanism};
use hsmux_token::Uri;
use indicatif::ProgressBar;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::process::{ProcessArg, ids};
use super::target::OpenTarget;
use crate::exit::Exit;
use crate::key_choice::KeyParts;
use crate::progress;

/// Options of every measurement of signatures.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The key, as a PKCS#11 URI [default: the one P-256 key]
    #[arg(long, value_name = "URI")]
    key: Option<Uri>,
    #[command(flatten)]
    parts: KeyParts,
    /// Concurrent callers, a thread each
    #[arg(long, short, default_value_t = 4, value_name = "N")]
    pub concurrency: usize,
    /// Signatures to make
    #[arg(long, short = 'n', default_value_t = 10_000, value_name = "M")]
    count: u64,
    /// The duration of the measurement, in place of a count
    #[arg(long, value_parser = hsmux_config::parse_duration, conflicts_with = "count")]
    time: Option<Duration>,
    /// Signatures to start per second, independent of earlier ones [default: each caller makes one after the other]
    #[arg(long, value_name = "PER_SECOND", value_parser = per_second)]
    rate: Option<f64>,
    /// The mechanism, as in ecdsa, sha256-rsa-pkcs [default: the usual one of the key]
    #[arg(long)]
    mechanism: Option<String>,
    /// Length of the signed data in bytes
    #[arg(long, default_value_t = 32, value_name = "BYTES")]
    data_len: usize,
    /// The duration of the same load before the measurement
    #[arg(long, value_parser = hsmux_config::parse_duration, default_value = "500ms")]
    warm_up: Duration,
    /// Do not check the signatures
    #[arg(long)]
    no_verify: bool,
    /// A further process to account for, with all its descendants, such as a vendor's daemon; may be repeated
    #[arg(long, value_name = "NAME|PID")]
    process: Vec<ProcessArg>,
}

/// Parses a rate per second: positive, and at least one a day.
fn per_second(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (1e-5..=1e6).contains(&number) {
        return Ok(number);
    }
    Err(format!("{text} a second: give from 0.00001 to 1000000"))
}

impl RunArgs {
    /// The engine's options for an open target.
    pub fn options(&self, opened: &OpenTarget) -> anyhow::Result<SignOptions> {
        let wanted = self.parts.with(self.key.as_ref())?;
        let key =
            BenchKey::find(&*opened.token, wanted.as_ref()).with_context(|| opened.name.clone())?;
        let workers = self.concurrency;
        let mut options = SignOptions::new(
            Arc::clone(&opened.token),
            opened.name.clone(),
            key,
            workers,
            self.count,
        );
        if let Some(per_second) = self.rate {
            options.load = LoadModel::Open {
                per_second,
                workers,
            };
        }
        if let Some(time) = self.time {
            options.until = Until::Elapsed(time);
        }
        let named = self.mechanism.as_deref().map(mechanism).transpose();
        options.mechanism = named.map_err(|e| Exit::Usage.because(e.to_string()))?;
        options.data_len = self.data_len;
        options.warm_up = self.warm_up;
        options.verify = !self.no_verify;
        options.processes.clone_from(&opened.processes);
        options.processes.extend(ids(&self.process)?);
        Ok(options)
    }
}

/// Lets Ctrl+C or SIGTERM end the measurement with its results so far. A second signal ends the program.
pub fn interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The exit code of shells for a program that a signal has ended.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// The exit code of a measurement; an interrupted one is not complete.
pub fn verdict(failed: bool, interrupted: bool) -> Exit {
    match (failed, interrupted) {
        (true, _) => Exit::Failed,
        (false, true) => Exit::Degraded,
        (false, false) => Exit::Done,
    }
}

/// Runs an action with a progress bar that can be interrupted.
pub fn watched<T>(
    stop: &AtomicBool,
    run: impl FnOnce(RunControl<'_>) -> hsmux_token::Result<T>,
) -> anyhow::Result<T> {
    watched_steps(stop, |control, _| run(control))
}

/// The same for an action that announces its steps.
pub fn watched_steps<T>(
    stop: &AtomicBool,
    run: impl FnOnce(RunControl<'_>, &dyn Fn(&str)) -> hsmux_token::Result<T>,
) -> anyhow::Result<T> {
    let bar = progress::bar(0, "");
    let control = RunControl {
        stop,
        progress: &|progress| show(&bar, progress),
    };
    let say = |step: &str| {
        if bar.is_hidden() {
            // Without a terminal the steps go to standard error, for logs.
            eprintln!("{step}");
        } else {
            bar.println(step);
        }
    };
    let result = run(control, &say);
    bar.finish_and_clear();
    Ok(result?)
}

fn show(bar: &ProgressBar, progress: &Progress) {
    let doing = match progress.phase {
        Phase::WarmUp => "warming up",
        Phase::Measure => "measuring",
        Phase::Check => "checking",
    };
    if let Some(of) = progress.of {
        bar.set_length(of);
    } else if let Some(left) = progress.left {
        // Progress by time, converted to a count.
        let elapsed = progress.elapsed.as_millis().max(1);
        let left = u128::from(progress.done) * left.as_millis() / elapsed;
        bar.set_length(progress.done + u64::try_from(left).unwrap_or(u64::MAX / 2));
    }
    let first = bar.position() == 0;
    bar.set_position(progress.done);
    if first {
        // Earlier runs do not affect the remaining time.
        bar.reset_eta();
    }
    let message = match progress.left {
        // The bar has no estimate before the first result, which slow tokens may take a while for.
        Some(left) if progress.done == 0 => format!("{doing}, {:.0} s left,", left.as_secs_f64()),
        _ => format!("{doing} {:.0}/s", progress.per_second()),
    };
    bar.set_message(message);
}
