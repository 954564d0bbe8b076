//! Parts of `hsmux bench churn` in processes of their own: nobody types this command.

use std::io::{stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use hsmux_bench::churn::{Keyring, PIN, Part};
use hsmux_console::exit;
use hsmux_module::{KeyWriter, ModuleToken, Options};
use hsmux_token::{Secret, Uri};
use rustix::process::{Signal, getpid, kill_process};

use crate::commands::Cli;

pub use hsmux_bench::churn::COMMAND;

/// `hsmux bench-part PART MODULE STATE`.
pub fn main() -> ExitCode {
    match serve() {
        Ok(code) => code,
        Err(error) => {
            // The parent reads lines of JSON.
            let line: Result<(), _> = Err(format!("{error:#}"));
            println!("{}", serde_json::to_string(&line).unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn serve() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(2);
    let part = arguments.next().context("which part?")?;
    let module = arguments.next().context("which module?")?;
    let state = arguments.next().context("which folder?")?;
    let options = || options(module.into(), state.into());
    let part = match part.to_str() {
        Some("broker") => return Ok(broker()),
        Some("bare") => Part::Bare(ModuleToken::open(options()?)?),
        Some("keys") => Part::Keys(Box::new(Writer(KeyWriter::open(options()?)?))),
        _ => bail!("{}: no such part", part.display()),
    };
    part.serve(stdin().lock(), stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

fn options(module: PathBuf, state: PathBuf) -> anyhow::Result<Options> {
    let pin = std::env::var(PIN).context(PIN)?;
    Ok(Options {
        module,
        slot: Uri {
            token: Some("churn".into()),
            ..Uri::default()
        },
        pin: Some(Secret::new(pin.into_bytes())),
        sessions: 64,
        state,
        name: "churn".into(),
        // As any program calls it.
        copies: Some(false),
        member: None,
        uri: None,
    })
}

/// The broker as always, which ends with its input.
fn broker() -> ExitCode {
    std::thread::spawn(|| {
        // Nothing is said there but that it ends.
        let _ = std::io::copy(&mut stdin().lock(), &mut std::io::sink());
        let _ = kill_process(getpid(), Signal::TERM);
    });
    println!(r#"{{"Ok":null}}"#);
    exit::tell(Cli::parse_from(["hsmux", "broker", "--log", "error"]).run())
}

struct Writer(KeyWriter);

impl Keyring for Writer {
    fn add(&mut self, label: &str) -> hsmux_token::Result<()> {
        self.0.add(label)
    }

    fn remove(&mut self) -> hsmux_token::Result<()> {
        self.0.remove().map(drop)
    }
}
