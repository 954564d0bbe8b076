//! `hsmux restart`.

use clap::Args;
use hsmux_daemon::admin::AdminRequest;

use super::service::ServiceArgument;
use crate::context::Context;
use crate::exit::Exit;

/// Options of `hsmux restart`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux restart gateway\n  \
    hsmux restart broker\n\n\
    The new process is that of the installed program, and reads its section as the last reload found it. No\n\
    client is refused. The old gateway goes on if the new one cannot start; it ends after its clients. A new\n\
    broker starts when the old one has answered its requests. Hosts reconnect to a new node.")]
pub struct RestartCommand {
    /// The service
    service: ServiceArgument,
}

impl RestartCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let service = self.service.into();
        super::show(
            context,
            context.ask(&AdminRequest::ServiceRestart { service })?,
        )
    }
}
