//! `hsmux service NAME`: a service process of the daemon that started it.

use clap::{Args, ValueEnum};
use hsmux_broker::BrokerService;
use hsmux_daemon::ServiceName;
use hsmux_gateway::Gateway;
use hsmux_node::NodeService;
use hsmux_service::run;
use hsmux_worker::{keep_secrets, take_stdin};

use super::serve::Serve;
use crate::context::Context;
use crate::exit::Exit;

/// Options of `hsmux service`.
#[derive(Args, Debug)]
pub struct ServiceCommand {
    #[command(flatten)]
    serve: Serve,

    /// The service
    name: ServiceArgument,
}

/// A service, as an argument.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ServiceArgument {
    Broker,
    Gateway,
    Node,
}

impl From<ServiceArgument> for ServiceName {
    fn from(argument: ServiceArgument) -> Self {
        match argument {
            ServiceArgument::Broker => Self::Broker,
            ServiceArgument::Gateway => Self::Gateway,
            ServiceArgument::Node => Self::Node,
        }
    }
}

impl ServiceCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        // It reads the private key of its certificate.
        keep_secrets();
        self.serve.start_log()?;
        let link = take_stdin()?;
        match self.name {
            ServiceArgument::Broker => run::<BrokerService>(link, context.file())?,
            ServiceArgument::Gateway => run::<Gateway>(link, context.file())?,
            ServiceArgument::Node => run::<NodeService>(link, context.file())?,
        }
        Ok(Exit::Done)
    }
}
