//! The processes of a service, and what is under way with them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use hsmux_config::User;
use hsmux_token::{Error, Result};
use hsmux_wire::{ServiceLink, ToService};

use super::super::ServiceStatus;
use super::super::kept_sockets::KeptSockets;

/// The state of a supervised service.
pub(super) struct SupervisedState {
    pub status: ServiceStatus,
    /// The process that accepts clients, one that is to replace it, and replaced ones that still have clients.
    pub processes: Vec<ServiceInstance>,
    /// The number of the process that accepts clients, or did so last.
    pub current: u64,
    /// The number of the next process.
    pub next: u64,
    /// Those of the current process.
    pub kept: KeptSockets,
    /// The user of the process that had them last; `None` as in [`ServiceInstance::user`].
    pub kept_of: Option<User>,
    /// A restart by an administrator is under way.
    pub restart: Restart,
    /// The number of the last one.
    pub restart_number: u64,
    pub listens: bool,
    pub is_ending: bool,
}

/// A process of the service.
#[derive(Clone)]
pub(super) struct ServiceInstance {
    pub number: u64,
    pub pid: u32,
    pub link: Arc<ServiceLink>,
    pub trail_changed: Arc<OwnedFd>,
    /// Its user, as the configuration names it; `None`: it names none.
    pub user: Option<User>,
    /// It has not said yet that it serves, and is ended at this time if it still has not.
    pub ready_by: Option<Instant>,
    /// It has handed over its sockets, and is killed at this time if it has not ended.
    pub ends_by: Option<Instant>,
}

/// A restart by an administrator.
pub(super) enum Restart {
    /// None.
    No,
    /// A process beside the current one starts.
    Beside,
    /// The current process ends, and the next one starts after it.
    After(Sender<Result<()>>),
    /// That one starts.
    Starting,
}

impl Restart {
    /// Begins the start after the current process, if that is what was asked for.
    pub fn begin(&mut self) -> StartSender {
        match std::mem::replace(self, Self::Starting) {
            Self::After(tell) => Some(tell),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// The channel for the result of a start.
pub(super) type StartSender = Option<Sender<Result<()>>>;

/// Why a thread starts its first process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstStart {
    /// The daemon starts. An error ends it.
    OfDaemon,
    /// The process is to replace the current one.
    OfReplacement,
}

/// A process that has ended.
pub(super) struct EndedInstance {
    /// `None`: it did not begin.
    pub number: Option<u64>,
    pub problem: Error,
    pub has_served: bool,
}

impl SupervisedState {
    pub fn process(&self, number: u64) -> Option<&ServiceInstance> {
        self.processes
            .iter()
            .find(|process| process.number == number)
    }

    /// The next process will not start. Whoever waits for it hears that.
    pub fn forget_restart(&mut self) {
        if matches!(self.restart, Restart::After(_)) {
            self.restart = Restart::No;
        }
    }

    /// Has these processes leave the clients to another one, and end.
    pub fn hand_over(&mut self, which: impl Fn(u64) -> bool, ends_by: Instant) {
        for process in &mut self.processes {
            if which(process.number) && process.ends_by.is_none() {
                process.ends_by = Some(ends_by);
                // Its thread waits until then at most.
                let _ = rustix::io::write(&process.trail_changed, &1_u64.to_ne_bytes());
                if process.link.tell(&ToService::HandOver).is_err() {
                    process.link.close();
                }
            }
        }
    }
}
