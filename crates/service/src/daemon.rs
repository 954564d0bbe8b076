//! The daemon, as a service has it: what is in force, and who takes its connections.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use hsmux_config::{Config, parse};
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{FromService, ServiceClient, ServiceLink, ToService};

/// The link to the daemon.
pub struct Daemon {
    link: ServiceLink,
    /// The configuration file, for messages and relative paths.
    file: PathBuf,
    config: ArcSwap<Config>,
    trouble: ArcSwapOption<String>,
}

/// What the daemon has said.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// Something else is in force, or the daemon is in other trouble.
    Changed,
    /// No new clients from now on.
    StopListening,
    /// It has gone.
    End,
}

impl Daemon {
    /// Waits for its configuration of this file.
    pub fn meet(link: OwnedFd, file: PathBuf) -> Result<Self> {
        let link = ServiceLink::of_service(link);
        match link.hear().map_err(|e| lost(&e))? {
            ToService::Configuration(text) => Ok(Self {
                config: ArcSwap::from_pointee(read(&file, &text)?),
                trouble: ArcSwapOption::empty(),
                link,
                file,
            }),
            other => Err(Error::protocol(format!("no configuration, but {other:?}"))),
        }
    }

    /// The configuration that is in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Why the daemon uses no keys now, where it does not.
    pub fn trouble(&self) -> Option<Arc<String>> {
        self.trouble.load_full()
    }

    /// Waits for what it says. A configuration is in force when this answers.
    pub fn hear(&self) -> Result<News> {
        match self.link.hear() {
            Ok(ToService::Configuration(text)) => {
                match read(&self.file, &text) {
                    Ok(config) => self.config.store(Arc::new(config)),
                    Err(error) => tracing::error!(%error, "the service goes on as it was"),
                }
                Ok(News::Changed)
            }
            Ok(ToService::Trouble(why)) => {
                self.trouble.store(why.map(Arc::new));
                Ok(News::Changed)
            }
            Ok(ToService::StopListening) => Ok(News::StopListening),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(News::End),
            Err(error) => Err(lost(&error)),
        }
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

    /// A connection that the daemon serves for this client; what that may do, and whether it may have one, the daemon
    /// says on it.
    pub fn connect(&self, client: ServiceClient) -> Result<UnixStream> {
        let failed = |error: io::Error| {
            let message = format!("the daemon takes no connection: {error}");
            Error::token(Kind::Busy, message)
        };
        let (near, connection) = UnixStream::pair().map_err(failed)?;
        let connect = FromService::Connect { client, connection };
        self.link.report(connect).map_err(failed)?;
        Ok(near)
    }
}

/// The daemon has found it good.
fn read(file: &Path, text: &str) -> Result<Config> {
    parse(file, text).map_err(|mistakes| {
        let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        Error::pool(Kind::Environment, lines.join("\n"))
    })
}

fn lost(error: &io::Error) -> Error {
    Error::lost(format!("the daemon: {error}"))
}
