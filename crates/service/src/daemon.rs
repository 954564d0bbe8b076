//! The daemon as a service sees it: it sends the configuration and takes connections.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use hsmux_config::{Config, parse};
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{FromService, ListeningSocket, ServiceClient, ServiceLink, ToService};
use parking_lot::Mutex;

use crate::recorder::RecorderState;

/// A service's link to the daemon.
pub struct Daemon {
    pub(crate) link: ServiceLink,
    /// Gets the daemon's answers, if the service records events.
    pub(crate) recorder: OnceLock<Arc<RecorderState>>,
    /// Listening sockets of an earlier process, until this one has taken them.
    pub(crate) inherited: Mutex<Vec<ListeningSocket>>,
    /// How many listening sockets the daemon keeps.
    pub(crate) kept: AtomicUsize,
    /// The configuration file, for messages and relative paths.
    file: PathBuf,
    config: ArcSwap<Config>,
    trouble: ArcSwapOption<String>,
}

/// A message of the daemon.
#[derive(Debug, PartialEq, Eq)]
pub enum DaemonEvent {
    /// The configuration is another one, or the daemon's trouble is.
    Changed,
    /// Accept no new clients from now on.
    StopListening,
    /// Another process of the service accepts the clients from now on.
    HandOver,
    /// A signal: accept no new clients, and end after those that are there.
    Terminate,
    /// The daemon has ended.
    End,
}

/// The daemon closes the link of a user who may not be the service.
const NO_CONFIGURATION: &str = "the daemon has closed the link without a configuration: it stops, or `user` in the \
     service's section is not the user of this process; the log of hsmux says which";

impl Daemon {
    /// Waits for the configuration, which the daemon has read from `file`.
    pub fn await_configuration(link: OwnedFd, file: PathBuf) -> Result<Self> {
        let link = ServiceLink::of_service(link);
        let mut inherited = Vec::new();
        loop {
            let heard = link.hear().map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => Error::lost(NO_CONFIGURATION),
                _ => lost(&error),
            });
            match heard? {
                ToService::Socket(socket) => inherited.push(socket),
                ToService::Configuration(text) => {
                    return Ok(Self {
                        config: ArcSwap::from_pointee(read(&file, &text)?),
                        trouble: ArcSwapOption::empty(),
                        recorder: OnceLock::new(),
                        inherited: Mutex::new(inherited),
                        kept: AtomicUsize::new(0),
                        link,
                        file,
                    });
                }
                other => return Err(Error::protocol(format!("no configuration, but {other:?}"))),
            }
        }
    }

    /// The configuration that is in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Why the daemon uses no keys now, if so.
    pub fn trouble(&self) -> Option<Arc<String>> {
        self.trouble.load_full()
    }

    /// Waits for a message. A new configuration is in force when this returns.
    pub fn next_event(&self) -> Result<DaemonEvent> {
        loop {
            match self.link.hear() {
                Ok(ToService::Configuration(text)) => {
                    self.configure(&text);
                    return Ok(DaemonEvent::Changed);
                }
                Ok(ToService::Trouble(why)) => {
                    self.trouble.store(why.map(Arc::new));
                    return Ok(DaemonEvent::Changed);
                }
                Ok(ToService::StopListening) => return Ok(DaemonEvent::StopListening),
                Ok(ToService::HandOver) => return Ok(DaemonEvent::HandOver),
                // It comes before the configuration alone.
                Ok(ToService::Socket(_)) => {}
                Ok(ToService::Recorded { number, result }) => {
                    if let Some(recorder) = self.recorder.get() {
                        recorder.set_result(number, result);
                    }
                }
                Err(error) => {
                    if let Some(recorder) = self.recorder.get() {
                        recorder.end();
                    }
                    return match error.kind() {
                        io::ErrorKind::UnexpectedEof => Ok(DaemonEvent::End),
                        _ => Err(lost(&error)),
                    };
                }
            }
        }
    }

    fn configure(&self, text: &str) {
        match read(&self.file, text) {
            Ok(config) => {
                self.config.store(Arc::new(config));
                if let Some(recorder) = self.recorder.get() {
                    recorder.configure(&self.config());
                }
            }
            Err(error) => tracing::error!(%error, "the service goes on as it was"),
        }
    }

    /// Reports that this service serves, with all sockets that it wants.
    pub fn ready(&self) -> Result<()> {
        self.inherited.lock().clear();
        self.link.report(FromService::Ready).map_err(|e| lost(&e))
    }

    /// Reports why this service cannot start.
    pub fn failed(&self, why: &Error) {
        // An error means that the daemon has ended.
        let _ = self.link.report(FromService::Failed(why.clone()));
    }

    /// Reports a refused client. If there are very many, some are not reported.
    pub fn refuse(&self, from: &str, problem: &str, advice: &str) {
        let _ = self.link.report(FromService::Refused {
            from: from.to_owned(),
            problem: problem.to_owned(),
            advice: advice.to_owned(),
        });
    }

    /// Opens a connection that the daemon serves for this client. The daemon itself refuses it or limits it, and says
    /// so on the connection.
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

/// Parses a configuration that the daemon has accepted.
fn read(file: &Path, text: &str) -> Result<Config> {
    parse(file, text).map_err(|mistakes| {
        let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        Error::pool(Kind::Environment, lines.join("\n"))
    })
}

fn lost(error: &io::Error) -> Error {
    Error::lost(format!("the daemon: {error}"))
}
