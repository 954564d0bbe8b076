//! The daemon, as this service has it: what is in force, and who serves the connections of hosts.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use hsmux_config::{NodeSection, parse};
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{FromService, ServiceLink, ToService};
use tokio::net::UnixStream;

/// The link to the daemon.
pub struct Daemon {
    link: ServiceLink,
    /// The configuration file, for messages and relative paths.
    file: PathBuf,
    section: ArcSwapOption<NodeSection>,
}

/// What the daemon has said.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// Something else is in force.
    Configuration,
    /// No new hosts from now on.
    StopListening,
    /// It has gone.
    End,
}

impl Daemon {
    /// Waits for its configuration of this file.
    pub fn meet(link: OwnedFd, file: PathBuf) -> Result<Self> {
        let daemon = Self {
            link: ServiceLink::of_service(link),
            file,
            section: ArcSwapOption::empty(),
        };
        match daemon.hear()? {
            News::Configuration => Ok(daemon),
            other => Err(Error::protocol(format!("no configuration, but {other:?}"))),
        }
    }

    /// `[node]`, as it is in force; `None` where it was taken out.
    pub fn section(&self) -> Option<Arc<NodeSection>> {
        self.section.load_full()
    }

    /// Waits for what it says.
    pub fn hear(&self) -> Result<News> {
        match self.link.hear() {
            Ok(ToService::Configuration(text)) => {
                if let Err(error) = self.take_over(&text) {
                    tracing::error!(%error, "the node goes on as it was");
                }
                Ok(News::Configuration)
            }
            Ok(ToService::StopListening) => Ok(News::StopListening),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(News::End),
            Err(error) => Err(lost(&error)),
        }
    }

    fn take_over(&self, text: &str) -> Result<()> {
        let config = parse(&self.file, text).map_err(|mistakes| {
            let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
            Error::pool(Kind::Environment, lines.join("\n"))
        })?;
        self.section.store(config.node.map(Arc::new));
        Ok(())
    }

    /// Says that this service serves.
    pub fn ready(&self) -> Result<()> {
        self.link.report(FromService::Ready).map_err(|e| lost(&e))
    }

    /// Says why it cannot.
    pub fn failed(&self, why: &Error) {
        // It hears it, or has gone.
        let _ = self.link.report(FromService::Failed(why.clone()));
    }

    /// A client is refused. Where very many are, not all of them are told.
    pub fn refuse(&self, from: &str, problem: &str, advice: &str) {
        let _ = self.link.report(FromService::Refused {
            from: from.to_owned(),
            problem: problem.to_owned(),
            advice: advice.to_owned(),
        });
    }

    /// The end of a connection that the daemon serves for the host of this name. Whether that may have one the daemon
    /// says on it.
    pub fn serve(&self, host: &str, from: &str) -> Result<UnixStream> {
        let failed = |error: io::Error| {
            Error::token(
                Kind::Busy,
                format!("the daemon takes no connection: {error}"),
            )
        };
        let (near, connection) = StdUnixStream::pair().map_err(failed)?;
        near.set_nonblocking(true).map_err(failed)?;
        let serve = FromService::Serve {
            host: host.to_owned(),
            from: from.to_owned(),
            connection,
        };
        self.link.report(serve).map_err(failed)?;
        UnixStream::from_std(near).map_err(failed)
    }
}

fn lost(error: &io::Error) -> Error {
    Error::lost(format!("the daemon: {error}"))
}
