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

/// What happens to a running service.
enum RunEvent<S> {
    Daemon(Result<DaemonEvent>),
    /// It has left its clients. `None`: it has ended.
    Left(Option<S>),
}

/// Runs a service until the daemon at the other end of `link` has ended. `file` is the configuration file, which the
/// daemon reads.
pub fn run<S>(link: OwnedFd, file: PathBuf, ended_by: EndedBy) -> Result<()>
where
    S: ServiceProcess + Send + 'static,
{
    let daemon = Arc::new(Daemon::await_configuration(link, file)?);
    let (tell, events) = channel::<RunEvent<S>>();
    if ended_by == EndedBy::Signals {
        hear_signals(tell.clone())?;
    }
    listen(&daemon, tell.clone())?;
    let mut serving = Some(S::start(&daemon).inspect_err(|error| daemon.failed(error))?);
    daemon.ready()?;
    loop {
        let event = match events.recv() {
            Ok(RunEvent::Left(None)) => return Ok(()),
            Ok(RunEvent::Left(Some(left))) => {
                left.changed();
                serving = Some(left);
                continue;
            }
            Ok(RunEvent::Daemon(event)) => event?,
            Err(_) => DaemonEvent::End,
        };
        match (event, serving.take()) {
            (DaemonEvent::End, service) => {
                // Without a daemon nobody signs. The next daemon starts another service on the same ports, so this one
                // ends at once, also if it is leaving its clients.
                std::mem::forget(service);
                return Ok(());
            }
            (DaemonEvent::Changed, Some(service)) => {
                service.changed();
                serving = Some(service);
            }
            (DaemonEvent::StopListening, Some(service)) => {
                leave(&tell, || service.stop_listening())?;
            }
            (DaemonEvent::Terminate, Some(service)) => leave(&tell, || {
                service.terminate();
                None
            })?,
            (DaemonEvent::HandOver, Some(service)) => leave(&tell, || {
                service.hand_over();
                None
            })?,
            // It leaves its clients already.
            (_, None) => {}
        }
    }
}

/// Leaves the clients on a thread of its own: the daemon may end meanwhile.
fn leave<S: Send + 'static>(
    tell: &Sender<RunEvent<S>>,
    leaves: impl FnOnce() -> Option<S> + Send + 'static,
) -> Result<()> {
    let tell = tell.clone();
    spawn("hsmux-leave", move || {
        let _ = tell.send(RunEvent::Left(leaves()));
    })
}

/// Hears the daemon on a thread of its own: a service that starts or ends waits for answers to its audit events.
fn listen<S: Send + 'static>(daemon: &Arc<Daemon>, tell: Sender<RunEvent<S>>) -> Result<()> {
    let daemon = Arc::clone(daemon);
    spawn("hsmux-link", move || {
        loop {
            let event = daemon.next_event();
            let is_last = matches!(event, Ok(DaemonEvent::End) | Err(_));
            if tell.send(RunEvent::Daemon(event)).is_err() || is_last {
                return;
            }
        }
    })
}

fn hear_signals<S: Send + 'static>(tell: Sender<RunEvent<S>>) -> Result<()> {
    let failed = |error| Error::pool(Kind::Environment, format!("signals: {error}"));
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    spawn("hsmux-signals", move || {
        if signals.forever().next().is_some() {
            let _ = tell.send(RunEvent::Daemon(Ok(DaemonEvent::Terminate)));
        }
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = thread::Builder::new().name(name.into()).spawn(work);
    let failed = |error| Error::pool(Kind::Environment, format!("no thread: {error}"));
    started.map(drop).map_err(failed)
}
