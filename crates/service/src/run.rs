//! The life of a service.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use hsmux_token::Result;

use crate::{Daemon, News};

/// What begins to serve when its process does.
pub trait Service: Sized {
    /// Opens its sockets and serves.
    fn start(daemon: &Arc<Daemon>) -> Result<Self>;

    /// No new clients. One that ends when its clients have gone waits for that here, and answers `None`; one that serves
    /// its clients until the daemon has gone answers itself.
    fn stop_listening(self) -> Option<Self>;
}

/// Runs a service until the daemon at the other end of `link` has gone. `file` is the configuration file, which the daemon
/// reads.
pub fn run<S: Service>(link: OwnedFd, file: PathBuf) -> Result<()> {
    let daemon = Arc::new(Daemon::meet(link, file)?);
    let mut service = S::start(&daemon).inspect_err(|error| daemon.failed(error))?;
    daemon.ready()?;
    loop {
        match daemon.hear()? {
            News::Changed => {}
            News::StopListening => match service.stop_listening() {
                Some(left) => service = left,
                None => return Ok(()),
            },
            News::End => {
                // Nobody signs any more, and the next daemon starts another one on the same ports: it ends at once.
                std::mem::forget(service);
                return Ok(());
            }
        }
    }
}
