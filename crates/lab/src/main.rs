//! The program `hsmux-lab`: measurements and virtual cards. `hsmux bench` and `hsmux vcard` start it.
//! It must not contain code that serves programs in production.

mod bench;
mod vcard;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use hsmux_console::{
    consent, context, exit, key_choice, memory, output, pin, program, progress, rest, shell,
};

use crate::context::Context;
use crate::exit::Exit;

/// hsmux-lab has the commands of hsmux for measurements and virtual cards, which production hosts do not need.
#[derive(Parser, Debug)]
#[command(
    name = "hsmux-lab",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "hsmux bench and hsmux vcard start this program. It finds hsmux in its own folder.\n\
        hsmux --help has the exit codes.\n\n\
        hsmux-lab help COMMAND describes each."
)]
struct Cli {
    #[command(flatten)]
    context: Context,
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Debug)]
// Only one exists, on the stack of `main`.
#[allow(clippy::large_enum_variant)]
enum LabCommand {
    /// Measure signatures, scaling, services and web servers
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run virtual SmartCard-HSMs for tests and training; they protect nothing
    #[command(subcommand)]
    Vcard(vcard::Vcard),
    /// Print the completions of a shell
    #[command(
        after_help = "Example:\n  hsmux-lab completions bash > /etc/bash_completion.d/hsmux-lab"
    )]
    Completions(shell::Completions),
    /// Write the manual pages into a folder
    #[command(after_help = "Example:\n  hsmux-lab man /usr/local/share/man/man1")]
    Man(shell::Man),
}

fn main() -> ExitCode {
    memory::refuse_huge_pages();
    // A child process for its parent only.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == bench::part::COMMAND)
    {
        return bench::part::main();
    }
    let cli: Cli = exit::parse();
    let as_json = cli.context.json;
    exit::tell(cli.run(), as_json)
}

impl Cli {
    /// Runs the command.
    fn run(self) -> anyhow::Result<Exit> {
        // Lets `hsmux bench ... | head` end quietly.
        sigpipe::reset();
        let context = &self.context;
        match self.command {
            LabCommand::Bench(command) => command.run(context),
            LabCommand::Vcard(command) => command.run(context),
            LabCommand::Completions(command) => command.run(context, Self::command()),
            LabCommand::Man(command) => command.run(context, Self::as_typed()),
        }
    }

    /// The commands as users type them, for the manual.
    fn as_typed() -> clap::Command {
        ["bench", "vcard"]
            .into_iter()
            .fold(Self::command(), |all, name| {
                all.mut_subcommand(name, |command| command.bin_name(format!("hsmux {name}")))
            })
    }
}

/// The program `hsmux`, which a measurement needs.
fn hsmux() -> anyhow::Result<PathBuf> {
    program::beside("hsmux", "hsmux-lab")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_an_example() {
        let command = Cli::command();
        command.clone().debug_assert();
        let found = shell::leaves(&command, "hsmux-lab");
        assert!(found.len() > 12, "{found:?}");
        for (typed, help) in found {
            // Users type `hsmux bench` and `hsmux vcard`.
            let shorter = typed.replacen("hsmux-lab", "hsmux", 1);
            let has_example = help.contains(&typed) || help.contains(&shorter);
            assert!(has_example, "no example in the help of {typed}");
        }
    }
}
