//! Commands about a program itself: `completions` and `man`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `completions`.
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Options of `man`.
#[derive(Args, Debug)]
pub struct Man {
    /// The folder; created if missing
    folder: PathBuf,
}

impl Completions {
    /// Prints the shell completions of `command`.
    pub fn run(self, context: &Context, mut command: Command) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        let program = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, &program, &mut script);
        let mut script = String::from_utf8(script)?;
        if self.shell == Shell::Bash {
            // clap_complete 4.6 has two names for a program with a hyphen, and then completes no subcommands.
            let [wrong, right] = ["__subcmd__", "__"].map(|joint| program.replace('-', joint));
            script = script.replace(&wrong, &right);
        }
        output::document(&script, context.json)?;
        Ok(Exit::Done)
    }
}

impl Man {
    /// Writes the manual pages of `command`.
    pub fn run(self, context: &Context, command: Command) -> anyhow::Result<Exit> {
        let folder = || self.folder.display().to_string();
        std::fs::create_dir_all(&self.folder).with_context(folder)?;
        clap_mangen::generate_to(command, &self.folder).with_context(folder)?;
        if context.json {
            output::json(&self.folder)?;
        }
        Ok(Exit::Done)
    }
}

/// Every visible command without subcommands: its full name, and the end of its help. `typed` is the name of `command`.
/// Tests check that each help has an example.
pub fn leaves(command: &Command, typed: &str) -> Vec<(String, String)> {
    if command.is_hide_set() {
        return Vec::new();
    }
    if command.get_subcommands().next().is_none() {
        let help = command.get_after_help().map(ToString::to_string);
        return vec![(typed.to_owned(), help.unwrap_or_default())];
    }
    let below = |sub: &Command| leaves(sub, &format!("{typed} {}", sub.get_name()));
    command.get_subcommands().flat_map(below).collect()
}
