//! `hsmux service NAME`: a service process of the daemon that started it.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use hsmux_broker::BrokerService;
use hsmux_daemon::ServiceName;
use hsmux_gateway::Gateway;
use hsmux_node::NodeService;
use hsmux_service::{EndedBy, ServiceLink, run};
use hsmux_worker::{keep_secrets, take_stdin};

use super::serve::Serve;
use crate::context::Context;
use crate::exit::Exit;

/// How long the daemon may take to listen for links.
const DAEMON_STARTS: Duration = Duration::from_secs(10);

/// Options of `hsmux service`.
#[derive(Args, Debug)]
pub struct ServiceCommand {
    #[command(flatten)]
    serve: Serve,

    /// The socket of the daemon's links, unless the standard input is a link
    #[arg(long, value_name = "SOCKET")]
    link: Option<PathBuf>,

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
        let (link, ended_by) = self.connect()?;
        let file = context.file();
        match self.name {
            ServiceArgument::Broker => run::<BrokerService>(link, file, ended_by)?,
            ServiceArgument::Gateway => run::<Gateway>(link, file, ended_by)?,
            ServiceArgument::Node => run::<NodeService>(link, file, ended_by)?,
        }
        Ok(Exit::Done)
    }

    fn connect(&self) -> anyhow::Result<(OwnedFd, EndedBy)> {
        if self.link.is_none() && ServiceLink::is_link(std::io::stdin()) {
            return Ok((take_stdin()?, EndedBy::Daemon));
        }
        let name = ServiceName::from(self.name).as_str();
        let path = self.link.clone();
        let path = path.unwrap_or_else(|| format!("/run/hsmux/hsmux-admin-{name}.sock").into());
        let link = connect_within(&path).map_err(|error| {
            let path = path.display();
            let hint = format!("the daemon listens there with [{name}] started_by = \"systemd\"");
            Exit::NoDaemon.because(format!("{path}: {error}; {hint}"))
        })?;
        Ok((link, EndedBy::Signals))
    }
}

/// A unit may start while the daemon starts.
fn connect_within(path: &Path) -> std::io::Result<OwnedFd> {
    let until = Instant::now() + DAEMON_STARTS;
    loop {
        let error = match ServiceLink::connect(path) {
            Ok(link) => return Ok(link),
            Err(error) => error,
        };
        let comes = matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::ConnectionRefused
        );
        if !comes || Instant::now() > until {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
