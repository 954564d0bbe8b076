//! `hsmux node`: the daemon with a `[node]`, and certificates for hosts.

mod authority;
mod certificate;

use clap::{Args, Subcommand};

use super::serve::Serve;
use crate::context::Context;
use crate::exit::Exit;
use authority::AuthorityInit;
use certificate::{Enroll, List, NodeRequestCommand, Revoke};

/// Options of `hsmux node`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
    hsmux node                     # the daemon; without [node] it refuses to start\n  \
    hsmux node ca init             # the authority of all hosts, in the folder ca\n  \
    hsmux node request web1        # on web1: its key, and a request\n  \
    hsmux node enroll web1 --csr node.csr\n  \
    hsmux node revoke web1\n\n\
    It offers this host's tokens to the hosts of each [[peer]], beside the sockets for PKCS#11. hsmux serve\n\
    does the same if there is a [node]. SIGTERM and Ctrl+C end it after running operations have finished."
)]
pub struct Node {
    #[command(subcommand)]
    command: Option<NodeCommand>,

    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// Manage the authority that issues certificates for hosts
    #[command(subcommand)]
    Ca(Ca),
    /// Create a key and a certificate request on a host
    Request(NodeRequestCommand),
    /// Issue a certificate for a host
    Enroll(Enroll),
    /// List the certificates of hosts
    List(List),
    /// Revoke the certificates of a host
    Revoke(Revoke),
}

#[derive(Subcommand, Debug)]
enum Ca {
    /// Create an authority in a new folder
    Init(Box<AuthorityInit>),
}

impl Node {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self.command {
            Some(NodeCommand::Ca(Ca::Init(init))) => init.run(context),
            Some(NodeCommand::Request(request)) => request.run(context),
            Some(NodeCommand::Enroll(enroll)) => enroll.run(context),
            Some(NodeCommand::List(list)) => list.run(context),
            Some(NodeCommand::Revoke(revoke)) => revoke.run(context),
            None if context.load()?.node.is_none() => {
                let file = context.file();
                let message = format!(
                    "{}: there is no [node]; add it with listen = [\"0.0.0.0:7443\"] and the files that \
                     hsmux node enroll makes",
                    file.display()
                );
                Err(Exit::Usage.because(message))
            }
            None => self.serve.run(context),
        }
    }

    /// Whether it runs the daemon, and is no command about certificates.
    pub fn serves(&self) -> bool {
        self.command.is_none()
    }
}
