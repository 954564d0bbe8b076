//! The command `hsmux`: arguments in, words out. What it does is in the libraries.

mod commands;
mod context;
mod exit;
mod output;
mod pin;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Cli;
use crate::exit::Exit;

fn main() -> ExitCode {
    // A worker has nothing to say but by its socket, and holds a PIN: it is not for clap to look at.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == "worker")
    {
        return hsmux_pool::process::worker_main();
    }
    let cli = Cli::parse();
    match cli.run() {
        Ok(exit) => exit.into(),
        Err(error) => {
            let exit = Exit::of(&error);
            eprintln!("hsmux: {error:#}");
            exit.into()
        }
    }
}
