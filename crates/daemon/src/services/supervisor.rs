//! One service: a thread that starts its process, attends to what it says, and starts it again when it has ended.

mod attend;
mod lifecycle;
mod state;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hsmux_config::{Config, StartedBy};
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{Entrance, ToService};
use parking_lot::{Condvar, Mutex};

use self::state::{FirstStart, Restart, StartSender, SupervisedState};
use super::kept_sockets::KeptSockets;
use super::link_socket::LinkSocket;
use super::process;
use super::{BROKER, GATEWAY, ServiceProgram, ServiceState, ServiceStatus};
use crate::daemon::Running;
use crate::settings::Clients;

/// How long a start may take. A process that does not serve by then is ended.
const START_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 30 });

/// Replaced processes that still serve clients. With so many there is no further restart.
const MOST_DRAINING: usize = 4;

/// A service under supervision. [`ServiceSupervisor::join`] ends it.
///
/// A thread starts the service's process, and the next one when that has ended. After a restart the new process has a
/// thread of its own, which goes on with that; the thread of the old one ends with its process.
pub struct ServiceSupervisor {
    service: Arc<SupervisedService>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct SupervisedService {
    name: &'static str,
    program: ServiceProgram,
    /// Where its processes connect, if something else starts them.
    links: Option<LinkSocket>,
    running: Weak<Running>,
    /// Where its connections come in, if it uses keys itself.
    entrance: Option<Entrance>,
    now: Mutex<SupervisedState>,
    changed: Condvar,
    /// Each is readable for its process when keys may not be used any more, or again.
    trail_changed: Arc<ArcSwap<Vec<Arc<OwnedFd>>>>,
}

impl ServiceSupervisor {
    /// Starts it, and waits until it serves or cannot.
    pub fn start(
        name: &'static str,
        running: &Arc<Running>,
        program: &ServiceProgram,
    ) -> Result<Self> {
        let trail_changed = Arc::<ArcSwap<Vec<Arc<OwnedFd>>>>::default();
        let seen = Arc::clone(&trail_changed);
        // The observer must not wait, so it only wakes the threads. A full counter is as good as a written one.
        running.shared.audit.observe(Box::new(move || {
            for process in &**seen.load() {
                let _ = rustix::io::write(process, &1_u64.to_ne_bytes());
            }
        }));
        let config = running.config();
        let links = match process::started_by(name, &config) {
            StartedBy::Daemon => None,
            StartedBy::Systemd => Some(LinkSocket::open(&config.admin.link_socket(name))?),
        };
        let service = Arc::new(SupervisedService {
            links,
            trail_changed,
            name,
            program: program.clone(),
            running: Arc::downgrade(running),
            entrance: clients_of(name)
                .map(|clients| running.listeners.of_service(running, clients)),
            now: Mutex::new(SupervisedState {
                status: ServiceStatus {
                    name: name.to_owned(),
                    state: ServiceState::Starting,
                    pid: None,
                    restarts: 0,
                    problem: None,
                },
                processes: Vec::new(),
                current: 0,
                next: 0,
                kept: KeptSockets::default(),
                kept_of: None,
                restart: Restart::No,
                restart_number: 0,
                listens: true,
                is_ending: false,
            }),
            changed: Condvar::new(),
        });
        let (tell, told) = channel();
        let is_child = service.links.is_none();
        let thread = service.spawn(FirstStart::OfDaemon, is_child.then_some(tell));
        let thread = thread.map_err(|e| service.cannot_start(&e))?;
        let supervisor = Self {
            service,
            threads: Mutex::new(vec![thread]),
        };
        if !is_child {
            // Its unit starts after the daemon's.
            return Ok(supervisor);
        }
        let started = told.recv_timeout(START_WITHIN);
        let silent = |_| supervisor.service.cannot_start(&silent_for(START_WITHIN));
        started.map_err(silent)??;
        Ok(supervisor)
    }

    /// Another configuration is in force.
    pub fn tell_configuration(&self, new: &Config) {
        let text = new.text.to_string();
        self.service.tell(&ToService::Configuration(text));
    }

    /// No new clients.
    pub fn stop_listening(&self) {
        {
            let mut now = self.service.now.lock();
            now.listens = false;
            // A client that connects after the service has closed its sockets is to be refused.
            now.kept.close();
            now.forget_restart();
        }
        self.service.tell(&ToService::StopListening);
    }

    /// Starts another process from the program's file. Clients do not notice: they wait for a moment at most.
    ///
    /// - A gateway's new process starts beside the old one. If it cannot, the old one goes on.
    /// - A broker's or a node's new process starts when the old one has ended, which takes `drain` at most.
    pub fn restart(&self, drain: Duration) -> Result<String> {
        let (tell, told) = channel();
        let (old, number, within) = {
            // Before the state: whoever joins the threads has set `is_ending`.
            let mut threads = self.threads.lock();
            let mut now = self.service.now.lock();
            self.service.check_restart(&now)?;
            now.restart_number += 1;
            let number = now.restart_number;
            if self.service.overlaps() {
                threads.retain(|thread| !thread.is_finished());
                let thread = self.service.spawn(FirstStart::OfReplacement, Some(tell));
                threads.push(thread.map_err(|e| self.service.cannot_start(&e))?);
                now.restart = Restart::Beside;
                (now.status.pid, number, START_WITHIN)
            } else {
                now.restart = Restart::After(tell);
                let current = now.current;
                now.hand_over(|number| number == current, Instant::now() + drain);
                (
                    now.status.pid,
                    number,
                    drain + process::ENDS_WITHIN * 2 + START_WITHIN,
                )
            }
        };
        // Each thread keeps to these times, and tells what has become of its process.
        let within = within + process::ENDS_WITHIN * 2;
        let started = told.recv_timeout(within).unwrap_or_else(|error| {
            let why = match error {
                RecvTimeoutError::Disconnected => "the daemon stops".to_owned(),
                RecvTimeoutError::Timeout => silent_for(within),
            };
            Err(self.service.cannot_start(&why))
        });
        let mut now = self.service.now.lock();
        // Another one may be under way by now.
        if now.restart_number == number {
            now.restart = Restart::No;
        }
        self.service.changed.notify_all();
        started?;
        let (name, new) = (self.service.name, now.status.pid.unwrap_or_default());
        let old = old.unwrap_or_default();
        Ok(format!(
            "the {name} is process {new} now; it was process {old}"
        ))
    }

    /// Ends it, without waiting for that.
    pub fn begin_end(&self) {
        let mut now = self.service.now.lock();
        now.is_ending = true;
        now.kept.close();
        now.forget_restart();
        for process in &now.processes {
            process.link.close();
        }
        self.service.changed.notify_all();
    }

    /// Ends it, and waits for that.
    pub fn join(&self) {
        self.begin_end();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.service.name
    }

    /// Waits for its end; whether it has ended.
    pub fn has_ended_by(&self, until: Instant) -> bool {
        let mut now = self.service.now.lock();
        while now.status.state != ServiceState::Ended || !now.processes.is_empty() {
            if self.service.changed.wait_until(&mut now, until).timed_out() {
                return false;
            }
        }
        true
    }

    /// How it is.
    pub fn status(&self) -> ServiceStatus {
        self.service.now.lock().status.clone()
    }
}

impl Drop for ServiceSupervisor {
    fn drop(&mut self) {
        self.join();
    }
}

/// What a service that uses keys itself may do.
fn clients_of(name: &str) -> Option<Clients> {
    match name {
        GATEWAY => Some(Clients::Gateway),
        BROKER => Some(Clients::Broker),
        _ => None,
    }
}

fn silent_for(within: Duration) -> String {
    let within = within.as_secs();
    format!("it says nothing within {within} s; the log of hsmux may say why")
}

impl SupervisedService {
    fn cannot_start(&self, why: &dyn std::fmt::Display) -> Error {
        let message = format!("the {} cannot start: {why}", self.name);
        Error::pool(Kind::Environment, message)
    }

    /// Whether two processes may serve at once. A broker's store is for one process, and hosts have connections
    /// without an end.
    fn overlaps(&self) -> bool {
        self.name == GATEWAY
    }

    fn spawn(
        self: &Arc<Self>,
        first: FirstStart,
        started: StartSender,
    ) -> io::Result<JoinHandle<()>> {
        let service = Arc::clone(self);
        let thread = thread::Builder::new().name(format!("hsmux-{}", self.name));
        thread.spawn(move || service.supervise(first, started))
    }

    fn check_restart(&self, now: &SupervisedState) -> Result<()> {
        let drains = now.processes.iter().filter(|old| old.ends_by.is_some());
        let drain: Vec<_> = drains.map(|old| old.pid.to_string()).collect();
        let unit = format!(
            "the daemon has not started it; systemctl restart hsmux-{} restarts its unit",
            self.name
        );
        let many = format!(
            "processes {} still serve their clients; wait until one of them has ended, or end it with kill",
            drain.join(", ")
        );
        let why = if self.links.is_some() {
            &unit
        } else if now.is_ending || !now.listens {
            "the daemon stops"
        } else if !matches!(now.restart, Restart::No) {
            "another restart is under way; hsmux status shows when it serves"
        } else if drain.len() >= MOST_DRAINING {
            &many
        } else if now.status.state != ServiceState::Serving {
            "it does not serve, and is started again by itself; hsmux status says why"
        } else {
            return Ok(());
        };
        let message = format!("the {} is not restarted: {why}", self.name);
        Err(Error::pool(Kind::Busy, message))
    }

    /// Tells it, if it is there. One that has no room for more hears nothing any more: it is ended, and started again.
    fn tell(&self, message: &ToService) {
        for process in &self.now.lock().processes {
            if let Err(error) = process.link.tell(message) {
                tracing::error!(%error, "the {} hears nothing", self.name);
                process.link.close();
            }
        }
    }
}

#[cfg(test)]
mod tests;
