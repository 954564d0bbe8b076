//! The commands, one file for each.

mod audit;
mod broker;
mod card;
mod config;
mod doctor;
mod gateway;
mod haproxy;
mod key;
pub mod lab;
mod node;
mod pin;
mod restart;
mod serve;
mod service;
mod status;
mod token;
mod token_auth;

use clap::{CommandFactory, Parser, Subcommand};
use hsmux_console::shell;
use hsmux_daemon::admin::{AdminFailure, AdminRequest, AdminResponse};

use crate::context::Context;
use crate::exit::Exit;

/// hsmux makes one fast, always-on HSM out of many PKCS#11 tokens.
#[derive(Parser, Debug)]
#[command(
    name = "hsmux",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Exit codes:\n  \
        0  done\n  \
        1  failed\n  \
        2  wrong arguments or configuration\n  \
        3  degraded: it works only in part\n  \
        4  the daemon cannot be reached\n\n\
        Examples:\n  \
        hsmux config example > hsmux.toml   # a file to start from\n  \
        hsmux serve                         # the daemon\n  \
        hsmux status                        # the pool and its members\n  \
        hsmux doctor                        # what is wrong, and what to do\n\n\
        hsmux help COMMAND describes each."
)]
pub struct Cli {
    #[command(flatten)]
    context: Context,
    #[command(subcommand)]
    command: HsmuxCommand,
}

#[derive(Subcommand, Debug)]
// Only one exists, on the stack of `main`.
#[allow(clippy::large_enum_variant)]
enum HsmuxCommand {
    /// Run the daemon
    Serve(serve::Serve),
    /// Run the daemon; fail without [broker]
    Broker(broker::BrokerCommand),
    /// Run the daemon; fail without [gateway]
    Gateway(gateway::GatewayCommand),
    /// Run the daemon, and fail without [node]; issue certificates for hosts
    Node(node::Node),
    /// Write the configuration of a load balancer in front of several gateways
    #[command(subcommand)]
    Haproxy(haproxy::Haproxy),
    /// Manage tokens of the broker's clients
    #[command(subcommand)]
    TokenAuth(token_auth::TokenAuth),
    /// Show the pool, its listeners and its members
    Status(status::StatusCommand),
    /// Show errors of the set-up, and how to fix them
    Doctor(doctor::Doctor),
    /// Check, show or find the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Manage members of the pool, and list tokens of a module
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Manage keys and certificates on the members
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Manage PINs of the members
    #[command(subcommand)]
    Pin(pin::PinCommand),
    /// Set up, copy and back up SmartCard-HSMs and Nitrokey HSMs
    #[command(subcommand)]
    Card(card::CardCommand),
    /// Measure signatures, scaling, services and web servers
    #[command(after_help = "Example:\n  \
        hsmux bench sign\n\n\
        The program hsmux-lab has these commands: see hsmux-lab-bench(1).")]
    Bench(lab::Lab),
    /// Run virtual SmartCard-HSMs for tests and training; they protect nothing
    #[command(after_help = "Example:\n  \
        hsmux vcard run\n\n\
        The program hsmux-lab has these commands: see hsmux-lab-vcard(1).")]
    Vcard(lab::Lab),
    /// Show or verify the audit trail
    Audit(audit::Audit),
    /// Reload the configuration
    #[command(after_help = "Example:\n  hsmux reload")]
    Reload,
    /// Replace the process of a service by a new one; clients do not notice
    Restart(restart::RestartCommand),
    /// Stop the daemon after running operations have finished
    #[command(after_help = "Example:\n  hsmux stop")]
    Stop,
    /// A service of a daemon, which starts it
    #[command(hide = true)]
    Service(service::ServiceCommand),
    /// Print the completions of a shell
    #[command(after_help = "Example:\n  hsmux completions bash > /etc/bash_completion.d/hsmux")]
    Completions(shell::Completions),
    /// Write the manual pages into a folder
    #[command(after_help = "Example:\n  hsmux man /usr/local/share/man/man1")]
    Man(shell::Man),
}

impl Cli {
    /// Whether programs read the answer.
    pub fn is_json(&self) -> bool {
        self.context.json
    }

    /// Runs the command.
    pub fn run(self) -> anyhow::Result<Exit> {
        let context = &self.context;
        let serves = matches!(
            self.command,
            HsmuxCommand::Serve(_)
                | HsmuxCommand::Broker(_)
                | HsmuxCommand::Gateway(_)
                | HsmuxCommand::Service(_)
        ) || matches!(&self.command, HsmuxCommand::Node(node) if node.serves());
        if !serves {
            // Lets `hsmux ... | head` end quietly.
            sigpipe::reset();
        }
        match self.command {
            HsmuxCommand::Serve(command) => command.run(context),
            HsmuxCommand::Broker(command) => command.run(context),
            HsmuxCommand::Gateway(command) => command.run(context),
            HsmuxCommand::Node(command) => command.run(context),
            HsmuxCommand::Haproxy(command) => command.run(context),
            HsmuxCommand::TokenAuth(command) => command.run(context),
            HsmuxCommand::Status(command) => command.run(context),
            HsmuxCommand::Doctor(_) => doctor::Doctor::run(context),
            HsmuxCommand::Config(command) => command.run(context),
            HsmuxCommand::Token(command) => command.run(context),
            HsmuxCommand::Key(command) => command.run(context),
            HsmuxCommand::Pin(command) => command.run(context),
            HsmuxCommand::Card(command) => command.run(context),
            HsmuxCommand::Bench(_) => lab::start("bench"),
            HsmuxCommand::Vcard(_) => lab::start("vcard"),
            HsmuxCommand::Audit(command) => command.run(context),
            HsmuxCommand::Reload => reload(context),
            HsmuxCommand::Restart(command) => command.run(context),
            HsmuxCommand::Stop => show(context, context.ask(&AdminRequest::Stop)?),
            HsmuxCommand::Service(command) => command.run(context),
            HsmuxCommand::Completions(command) => {
                command.run(context, lab::with_subcommands(Self::command()))
            }
            HsmuxCommand::Man(command) => command.run(context, Self::command()),
        }
    }
}

/// Reloads the configuration. A file with mistakes has the exit code of mistakes.
fn reload(context: &Context) -> anyhow::Result<Exit> {
    let answer = context.ask(&AdminRequest::Reload).map_err(|error| {
        let is_mistake = |failure: &AdminFailure| failure.kind == "Invalid";
        if !error.downcast_ref().is_some_and(is_mistake) {
            return error;
        }
        let next =
            "fix the file, and run hsmux reload again; hsmux config check finds every mistake";
        Exit::Usage.because(format!("{error:#}\n{next}"))
    })?;
    show(context, answer)
}

/// Prints an answer without a table of its own.
fn show(context: &Context, response: AdminResponse) -> anyhow::Result<Exit> {
    match response {
        AdminResponse::Keys(rows) => return key::show(context, &rows),
        AdminResponse::Pins(rows) => return pin::show(context, &rows),
        AdminResponse::Status(status) => status::show(context, &status)?,
        AdminResponse::Done if context.json => println!("{{}}"),
        AdminResponse::Done => {}
        AdminResponse::Lines(lines) if context.json => crate::output::json(&lines)?,
        AdminResponse::Lines(lines) if lines.is_empty() => println!("nothing has changed"),
        AdminResponse::Lines(lines) => lines.iter().for_each(|line| println!("{line}")),
        AdminResponse::Text(text) => crate::output::document(&text, context.json)?,
        AdminResponse::Failed(failure) => return Err(failure.into()),
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_an_example() {
        let command = Cli::command();
        command.clone().debug_assert();
        let found = shell::leaves(&command, "hsmux");
        assert!(found.len() > 25, "{found:?}");
        for (typed, help) in found {
            assert!(help.contains(&typed), "no example in the help of {typed}");
        }
    }
}
