//! `hsmux bench` and `hsmux vcard`: commands of the program `hsmux-lab`, which production hosts need not have.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context as _;
use clap::Args;
use hsmux_console::program::beside;

use crate::exit::Exit;

/// Commands of `hsmux-lab` that users type as commands of `hsmux`, with their subcommands for completions.
const COMMANDS: [(&str, &[(&str, &str)]); 2] = [
    (
        "bench",
        &[
            ("sign", "Evaluate signatures by one key"),
            ("scale", "Measure throughput by the number of members"),
            ("burn-in", "Make and verify signatures for hours"),
            ("compare", "Compare ways to the same token"),
            ("http", "Load a service with the Transit API over HTTP"),
            ("tls", "Load a web server over TLS"),
            (
                "matrix",
                "Measure a table of a web cluster's cells over TLS",
            ),
            ("churn", "Measure the cost of key changes by other programs"),
        ],
    ),
    (
        "vcard",
        &[
            ("run", "Run virtual cards in separate readers"),
            ("list", "Show the running cards"),
            ("fault", "Pull a running card, plug it in, or order faults"),
            ("pcscd", "End or restart the pcscd of the running cards"),
        ],
    ),
];

/// Arguments for `hsmux-lab`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Lab {
    /// A command of the program hsmux-lab, and its options
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    _arguments: Vec<OsString>,
}

/// Whether `hsmux-lab` has the help of this command.
pub fn explains(command: Option<&OsStr>) -> bool {
    COMMANDS
        .into_iter()
        .any(|(known, _)| command == Some(known.as_ref()))
}

/// The commands of `hsmux` with the subcommands of `hsmux-lab`, for completions.
pub fn with_subcommands(hsmux: clap::Command) -> clap::Command {
    COMMANDS.into_iter().fold(hsmux, |hsmux, (name, below)| {
        hsmux.mut_subcommand(name, |command| {
            let about = command.get_about().cloned().unwrap_or_default();
            let below = below
                .iter()
                .map(|(name, about)| clap::Command::new(*name).about(*about));
            clap::Command::new(name).about(about).subcommands(below)
        })
    })
}

/// Replaces this process by `hsmux-lab` with the same arguments. It returns only on failure.
pub fn start(command: &str) -> anyhow::Result<Exit> {
    let lab = beside("hsmux-lab", &format!("hsmux {command}"))?;
    let mut arguments = std::env::args_os();
    let mut process = Command::new(&lab);
    // The help shows the name of the typed program.
    process.arg0(arguments.next().unwrap_or_else(|| "hsmux".into()));
    let error = process.args(arguments).exec();
    Err(error).with_context(|| format!("starting {}", lab.display()))
}
