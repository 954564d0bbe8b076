//! Runs a service from its start to its end.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use hsmux_token::Result;

use crate::{Daemon, DaemonEvent};

/// A service, which is all that its process does.
pub trait ServiceProcess: Sized {
    /// Opens its sockets and serves.
    fn start(daemon: &Arc<Daemon>) -> Result<Self>;

    /// Accepts no new clients from now on.
    ///
    /// - A service that ends with its clients waits for them here, and returns `None`.
    /// - A service that serves them until the daemon ends returns itself.
    fn stop_listening(self) -> Option<Self>;
}

/// Runs a service until the daemon at the other end of `link` has ended. `file` is the configuration file, which the
/// daemon reads.
pub fn run<S: ServiceProcess>(link: OwnedFd, file: PathBuf) -> Result<()> {
    let daemon = Arc::new(Daemon::await_configuration(link, file)?);
    let mut service = S::start(&daemon).inspect_err(|error| daemon.failed(error))?;
    daemon.ready()?;
    loop {
        match daemon.next_event()? {
            DaemonEvent::Changed => {}
            DaemonEvent::StopListening => match service.stop_listening() {
                Some(left) => service = left,
                None => return Ok(()),
            },
            DaemonEvent::End => {
                // Without a daemon nobody signs. The next daemon starts another service on the same ports, so this one
                // ends at once.
                std::mem::forget(service);
                return Ok(());
            }
        }
    }
}
