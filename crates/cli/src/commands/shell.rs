//! `hsmux completions` and `hsmux man`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux completions`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hsmux completions bash > /etc/bash_completion.d/hsmux")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Options of `hsmux man`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hsmux man /usr/local/share/man/man1")]
pub struct Man {
    /// The folder; it is made if it is not there
    folder: PathBuf,
}

impl Completions {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "hsmux", &mut script);
        output::document(&String::from_utf8(script)?, context.json)?;
        Ok(Exit::Done)
    }
}

impl Man {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let folder = || self.folder.display().to_string();
        std::fs::create_dir_all(&self.folder).with_context(folder)?;
        clap_mangen::generate_to(Cli::command(), &self.folder).with_context(folder)?;
        if context.json {
            output::json(&self.folder)?;
        }
        Ok(Exit::Done)
    }
}
