//! `hsmux completions` and `hsmux man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::exit::Exit;

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
    pub fn run(self) {
        let mut out = std::io::stdout();
        clap_complete::generate(self.shell, &mut Cli::command(), "hsmux", &mut out);
    }
}

impl Man {
    pub fn run(self) -> anyhow::Result<Exit> {
        std::fs::create_dir_all(&self.folder)?;
        clap_mangen::generate_to(Cli::command(), &self.folder)?;
        Ok(Exit::Done)
    }
}
