//! Runs a service from its start to its end.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use hsmux_token::{Error, Kind, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{Daemon, DaemonEvent};

/// A service, which is all that its process does.
pub trait ServiceProcess: Sized {
    /// Opens its sockets and serves.
    fn start(daemon: &Arc<Daemon>) -> Result<Self>;

    /// The configuration is another one, or the daemon's trouble is.
    fn changed(&self) {}

    /// Accepts no new clients from now on.
    ///
    /// - A service that ends with its clients waits for them here, and returns `None`.
    /// - A service that serves them until the daemon ends returns itself.
    fn stop_listening(self) -> Option<Self>;

    /// Another process accepts new clients from now on, on the same sockets. This one serves its clients until they
    /// have gone, for as long as at a stop.
    fn hand_over(self) {
        drop(self);
    }

    /// A signal: ends as at a stop. Its unit may start another process, which gets the same sockets.
    fn terminate(self) {
        drop(self.stop_listening());
    }
}

/// What ends a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndedBy {
    /// The daemon, which has started it.
    Daemon,
    /// SIGTERM and SIGINT as well: something else has started it.
    Signals,
}

/// Runs a service until the daemon at the other end of `link` has ended. `file` is the configuration file, which the
/// daemon reads.
pub fn run<S: ServiceProcess>(link: OwnedFd, file: PathBuf, ended_by: EndedBy) -> Result<()> {
    let daemon = Arc::new(Daemon::await_configuration(link, file)?);
    let (tell, events) = channel();
    if ended_by == EndedBy::Signals {
        hear_signals(tell.clone())?;
    }
    listen(&daemon, tell)?;
    let mut service = S::start(&daemon).inspect_err(|error| daemon.failed(error))?;
    daemon.ready()?;
    loop {
        match events.recv().unwrap_or(Ok(DaemonEvent::End))? {
            DaemonEvent::Changed => service.changed(),
            DaemonEvent::StopListening => match service.stop_listening() {
                Some(left) => service = left,
                None => return Ok(()),
            },
            DaemonEvent::Terminate => {
                service.terminate();
                return Ok(());
            }
            DaemonEvent::HandOver => {
                service.hand_over();
                return Ok(());
            }
            DaemonEvent::End => {
                // Without a daemon nobody signs. The next daemon starts another service on the same ports, so this one
                // ends at once.
                std::mem::forget(service);
                return Ok(());
            }
        }
    }
}

/// Hears the daemon on a thread of its own: a service that starts or ends waits for answers to its audit events.
fn listen(daemon: &Arc<Daemon>, tell: Sender<Result<DaemonEvent>>) -> Result<()> {
    let daemon = Arc::clone(daemon);
    let thread = thread::Builder::new().name("hsmux-link".into());
    let started = thread.spawn(move || {
        loop {
            let event = daemon.next_event();
            let is_last = matches!(event, Ok(DaemonEvent::End) | Err(_));
            if tell.send(event).is_err() || is_last {
                return;
            }
        }
    });
    started.map_err(|error| Error::pool(Kind::Environment, format!("no thread: {error}")))?;
    Ok(())
}

fn hear_signals(tell: Sender<Result<DaemonEvent>>) -> Result<()> {
    let failed = |error| Error::pool(Kind::Environment, format!("signals: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let thread = thread::Builder::new().name("hsmux-signals".into());
    let started = thread.spawn(move || {
        if signals.forever().next().is_some() {
            let _ = tell.send(Ok(DaemonEvent::Terminate));
        }
    });
    started.map_err(failed)?;
    Ok(())
}
