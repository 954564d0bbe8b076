//! Parts of `hsmux bench churn` as child processes, with a hidden command.

use std::io::{stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use hsmux_bench::churn::{Keyring, PIN, Part};
use hsmux_module::{KeyWriter, ModuleToken, Options};
use hsmux_token::{Secret, Uri};

pub use hsmux_bench::churn::COMMAND;

/// `hsmux-lab bench-part PART MODULE STATE`.
pub fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent reads lines of JSON.
            let line: Result<(), _> = Err(format!("{error:#}"));
            println!("{}", serde_json::to_string(&line).unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn serve() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(2);
    let part = arguments.next().context("which part?")?;
    let module = arguments.next().context("which module?")?;
    let state = arguments.next().context("which folder?")?;
    let options = || options(module.into(), state.into());
    let part = match part.to_str() {
        Some("bare") => Part::Bare(ModuleToken::open(options()?)?),
        Some("keys") => Part::Keys(Box::new(Writer(KeyWriter::open(options()?)?))),
        _ => bail!("{}: no such part", part.display()),
    };
    Ok(part.serve(stdin().lock(), stdout().lock())?)
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
        // Like other programs.
        copies: Some(false),
        member: None,
        uri: None,
    })
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
