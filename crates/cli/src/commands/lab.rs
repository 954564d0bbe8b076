//! `hsmux bench` and `hsmux vcard`: commands of the program `hsmux-lab`, which production hosts need not have.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context as _;
use clap::Args;
use hsmux_console::program::beside;

use crate::exit::Exit;

/// Commands of `hsmux-lab` that users type as commands of `hsmux`.
const COMMANDS: [&str; 2] = ["bench", "vcard"];

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
        .any(|known| command == Some(known.as_ref()))
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
