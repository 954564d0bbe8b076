//! The thread of a service: from the start of a process to the end of the last one.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_config::Config;
use hsmux_token::{Error, Kind};
use hsmux_wire::{ServiceLink, ToService};
use rustix::event::{EventfdFlags, eventfd};

use super::super::kept_sockets::KeptSockets;
use super::super::link_socket::LinkSocket;
use super::super::process::{self, ServiceChild};
use super::super::restarts::Restarts;
use super::super::{ServiceState, drain_time};
use super::state::{
    EndedInstance, FirstStart, Restart, ServiceInstance, StartSender, SupervisedState,
};
use super::{START_WITHIN, SupervisedService};

/// If a process ends and its next start is later than this, clients are refused. They can then go to another host.
const CLIENTS_WAIT: Duration = Duration::from_millis(500);

/// How often a service that something else starts is looked for, besides its link.
const LINK_POLL: Duration = Duration::from_millis(200);

/// For so long clients wait for its next process. Then they are refused.
const LINK_WAITS: Duration = Duration::from_secs(5);

impl SupervisedService {
    /// Starts the process, and the next one when that has ended.
    pub(super) fn supervise(&self, first: FirstStart, mut started: StartSender) {
        let mut restarts = Restarts::default();
        let mut first = Some(first);
        loop {
            let begun = Instant::now();
            let is_beside = first == Some(FirstStart::OfReplacement);
            let ended = self.live(is_beside, &mut started);
            let mut now = self.now.lock();
            let is_current = ended
                .number
                .map_or(!is_beside, |number| number == now.current);
            if !is_current {
                if let Some(started) = started.take() {
                    now.restart = Restart::No;
                    let _ = started.send(Err(ended.problem));
                }
                self.changed.notify_all();
                return;
            }
            now.status.state = ServiceState::Ended;
            now.status.pid = None;
            now.status.problem = Some(ended.problem.to_string());
            let had_sockets = ended.number.is_some();
            if had_sockets && !ended.has_served || ended.problem.kind() == Kind::Protocol {
                // The sockets may be why. A process that was taken over could have others accept on them.
                now.kept.close();
            }
            self.changed.notify_all();
            if let Some(started) = started.take() {
                let _ = started.send(Err(ended.problem.clone()));
                if first == Some(FirstStart::OfDaemon) {
                    return;
                }
            }
            first = None;
            if now.is_ending || !now.listens {
                return;
            }
            if let Some(tell) = now.restart.begin() {
                started = Some(tell);
                restarts = Restarts::default();
                now.status.state = ServiceState::Starting;
                continue;
            }
            if self.links.is_some() && ended.number.is_some() {
                tracing::warn!("the {} has ended: {}", self.name, ended.problem);
                now.status.restarts += 1;
                continue;
            }
            let pause = restarts.pause(begun.elapsed());
            if pause > CLIENTS_WAIT {
                now.kept.close();
            }
            tracing::error!(
                "the {} has ended: {}; it is started again in {} ms",
                self.name,
                ended.problem,
                pause.as_millis()
            );
            let until = Instant::now() + pause;
            let number = now.current;
            while !now.is_ending
                && now.current == number
                && !self.changed.wait_until(&mut now, until).timed_out()
            {}
            // The process beside it may be about to take its place.
            while matches!(now.restart, Restart::Beside) && now.current == number && !now.is_ending
            {
                self.changed.wait(&mut now);
            }
            if now.is_ending || !now.listens || now.current != number {
                return;
            }
            now.status.restarts += 1;
            now.status.state = ServiceState::Starting;
        }
    }

    /// From a start to the end after it.
    fn live(&self, is_beside: bool, started: &mut StartSender) -> EndedInstance {
        let (child, process, sent) = match self.begin(is_beside) {
            Ok(begun) => begun,
            Err(error) => {
                let program = self.program.file.display();
                let message = format!("the {} cannot be started ({program}): {error}", self.name);
                return EndedInstance {
                    number: None,
                    problem: Error::pool(Kind::Environment, message),
                    has_served: false,
                };
            }
        };
        let mut has_served = false;
        let said = self.attend(&process, &sent, started, &mut has_served);
        process.link.close();
        let fate = child.end();
        let mut now = self.now.lock();
        now.processes.retain(|other| other.number != process.number);
        self.wake_all(&now);
        EndedInstance {
            number: Some(process.number),
            problem: said.unwrap_or_else(|| Error::lost(fate)),
            has_served,
        }
    }

    /// Starts a process, or takes one that was started. It has been sent this configuration.
    fn begin(&self, is_beside: bool) -> io::Result<(ServiceChild, ServiceInstance, Arc<Config>)> {
        let stops = || io::Error::other("the daemon stops");
        let connected = self.links.as_ref().map(|links| self.await_link(links));
        let connected = connected.transpose()?;
        let running = self.running.upgrade().ok_or_else(stops)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let trail_changed = Arc::new(eventfd(0, flags)?);
        // Whoever changes the configuration meanwhile tells it after this.
        let mut now = self.now.lock();
        let config = running.config();
        let (child, link) = if let Some((link, pid)) = connected {
            (ServiceChild::Foreign(pid), link)
        } else {
            let (child, link) = process::start(&self.program, self.name, &config)?;
            (ServiceChild::Own(child), link)
        };
        let process = ServiceInstance {
            number: now.next,
            pid: child.id(),
            link: Arc::new(link),
            trail_changed,
            user: process::user_of(self.name, &process::as_written(&config)).cloned(),
            ready_by: Some(Instant::now() + START_WITHIN),
            ends_by: None,
        };
        self.equip(&mut now, &process, is_beside, &config);
        now.next += 1;
        if !is_beside {
            now.current = process.number;
            now.status.pid = Some(process.pid);
            now.status.state = ServiceState::Starting;
        }
        now.processes.push(process.clone());
        self.wake_all(&now);
        if now.is_ending || !now.listens {
            process.link.close();
        }
        Ok((child, process, config))
    }

    /// Gives a new process the sockets and its configuration. One that does not take them is ended.
    pub(super) fn equip(
        &self,
        now: &mut SupervisedState,
        process: &ServiceInstance,
        is_beside: bool,
        config: &Config,
    ) {
        if now.kept_of != process.user && !is_beside {
            now.kept.close();
        }
        let text = ToService::Configuration(config.text.to_string());
        let given = now.kept.give(&process.link);
        if let Err(error) = given.and_then(|()| process.link.tell(&text)) {
            tracing::error!(%error, "the {} does not get its configuration", self.name);
            process.link.close();
            if !is_beside {
                // A process that waits for its configuration would keep the clients waiting as well.
                now.kept.close();
            }
        }
        if !is_beside {
            now.kept_of.clone_from(&process.user);
        }
    }

    /// Waits for a process that something else has started.
    fn await_link(&self, links: &LinkSocket) -> io::Result<(ServiceLink, u32)> {
        let until = Instant::now() + LINK_WAITS;
        // The user of this configuration: each look-up reads files.
        let mut known: Option<(Arc<Config>, Vec<u32>)> = None;
        loop {
            let running = {
                let mut now = self.now.lock();
                let running = self
                    .running
                    .upgrade()
                    .filter(|_| !now.is_ending && now.listens);
                let running = running.ok_or_else(|| io::Error::other("the daemon stops"))?;
                now.status.state = ServiceState::Ended;
                if now.status.problem.is_none() {
                    let unit = self.name;
                    let problem = format!("it has not started yet: systemctl start hsmux-{unit}");
                    now.status.problem = Some(problem);
                }
                if Instant::now() > until {
                    now.kept.close();
                }
                running
            };
            let config = running.config();
            drop(running);
            let of = known.take().filter(|(of, _)| Arc::ptr_eq(of, &config));
            let users = of.map_or_else(|| self.users(&config), |(_, users)| users);
            let connected = links.accept(&users, LINK_POLL);
            // A user that does not exist is looked for again.
            known = (!users.is_empty()).then_some((config, users));
            if let Some(connected) = connected {
                return Ok(connected);
            }
        }
    }

    /// Who may be the service: its user; without one root, and the daemon's own.
    fn users(&self, config: &Config) -> Vec<u32> {
        match process::user_of(self.name, &process::as_written(config)) {
            Some(user) => user.id().into_iter().collect(),
            None => vec![0, rustix::process::geteuid().as_raw()],
        }
    }

    /// The processes whose threads are woken.
    fn wake_all(&self, now: &SupervisedState) {
        let all = now.processes.iter();
        let all = all.map(|process| Arc::clone(&process.trail_changed));
        self.trail_changed.store(Arc::new(all.collect()));
    }

    /// A process serves, and accepts the clients from now on.
    pub(super) fn take_over(&self, process: &ServiceInstance, kept: KeptSockets) {
        let drain = self.running.upgrade().map_or(Duration::ZERO, |running| {
            drain_time(self.name, &running.config()).unwrap_or_default()
        });
        let mut now = self.now.lock();
        now.current = process.number;
        for serving in &mut now.processes {
            if serving.number == process.number {
                serving.ready_by = None;
            }
        }
        now.status.state = ServiceState::Serving;
        now.status.pid = Some(process.pid);
        now.kept = kept;
        now.kept_of.clone_from(&process.user);
        if !now.listens || now.is_ending {
            now.kept.close();
        }
        if matches!(now.restart, Restart::Beside) {
            now.restart = Restart::No;
        }
        now.hand_over(|number| number != process.number, Instant::now() + drain);
        self.changed.notify_all();
    }
}
