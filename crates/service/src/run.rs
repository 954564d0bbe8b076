//! Runs a service from its start to its end.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
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

/// Runs a service until it has ended, or the daemon at the other end of `link` has. `file` is the configuration file,
/// which the daemon reads.
///
/// Returns at once when the daemon has ended, whatever the service does: without a daemon nobody signs, and the next
/// daemon starts another service on the same ports. The process has to end then.
pub fn run<S: ServiceProcess>(link: OwnedFd, file: PathBuf, ended_by: EndedBy) -> Result<()> {
    let daemon = Arc::new(Daemon::await_configuration(link, file)?);
    let (tell, events) = channel();
    if ended_by == EndedBy::Signals {
        hear_signals(tell.clone())?;
    }
    let (end, ended) = channel();
    let heard = Arc::clone(&daemon);
    spawn("hsmux-link", end.clone(), move || hear(&heard, &tell))?;
    spawn("hsmux-service", end, move || serve::<S>(&daemon, &events))?;
    ended.recv().unwrap_or(Ok(()))
}

/// Hears the daemon until it has ended: a service that starts or ends waits for answers to its audit events.
fn hear(daemon: &Daemon, tell: &Sender<DaemonEvent>) -> Result<()> {
    loop {
        match daemon.next_event()? {
            DaemonEvent::End => return Ok(()),
            // It may have ended.
            event => drop(tell.send(event)),
        }
    }
}

/// Starts the service, and does what the events ask for until it has ended.
fn serve<S: ServiceProcess>(daemon: &Arc<Daemon>, events: &Receiver<DaemonEvent>) -> Result<()> {
    let mut service = S::start(daemon).inspect_err(|error| daemon.failed(error))?;
    daemon.ready()?;
    for event in events {
        match event {
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
            DaemonEvent::End => break,
        }
    }
    // The daemon has ended, and the process does.
    std::mem::forget(service);
    Ok(())
}

fn hear_signals(tell: Sender<DaemonEvent>) -> Result<()> {
    let failed = |error| Error::pool(Kind::Environment, format!("signals: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let (end, _) = channel();
    spawn("hsmux-signals", end, move || {
        if signals.forever().next().is_some() {
            let _ = tell.send(DaemonEvent::Terminate);
        }
        Ok(())
    })
}

/// Starts a thread. Its result, or its panic, goes to `end`.
fn spawn(
    name: &'static str,
    end: Sender<Result<()>>,
    work: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<()> {
    let thread = thread::Builder::new().name(name.into());
    let started = thread.spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        let panicked = |_| Err(Error::lost(format!("the thread {name} has panicked")));
        let _ = end.send(result.unwrap_or_else(panicked));
    });
    let failed = |error| Error::pool(Kind::Environment, format!("no thread: {error}"));
    started.map(drop).map_err(failed)
}

#[cfg(test)]
mod tests;
