//! One service: a thread that starts its process, attends to what it says, and starts it again when it has ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hsmux_config::{Config, StartedBy, User};
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{Admitted, Entrance, FromService, ServiceClient, ServiceLink, ToService};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

use super::connections::ServiceConnections;
use super::events::ServiceEvents;
use super::kept_sockets::KeptSockets;
use super::link_socket::LinkSocket;
use super::process::{self, ServiceChild};
use super::restarts::Restarts;
use super::{BROKER, GATEWAY, NODE, ServiceProgram, ServiceState, ServiceStatus};
use crate::daemon::Running;
use crate::settings::Clients;

/// How often it is looked whether keys are used, though the trail has said nothing.
const LOOK: Duration = Duration::from_secs(10);

/// While more lines wait on the trail, the broker's events are not read: a broker that was taken over could fill the
/// trail's queue, and stop the use of all keys.
const MOST_WAITING: usize = 4096;

/// How long they are not read then.
const RELIEF: Duration = Duration::from_millis(5);

/// How long a start may take. A process that does not serve by then is ended.
const START_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 30 });

/// Replaced processes that still serve clients. With so many there is no further restart.
const MOST_DRAINING: usize = 4;

/// If a process ends and its next start is later than this, clients are refused. They can then go to another host.
const CLIENTS_WAIT: Duration = Duration::from_millis(500);

/// How often a service that something else starts is looked for, besides its link.
const LINK_POLL: Duration = Duration::from_millis(200);

/// For so long clients wait for its next process. Then they are refused.
const LINK_WAITS: Duration = Duration::from_secs(5);

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

/// The state of a supervised service.
struct SupervisedState {
    status: ServiceStatus,
    /// The process that accepts clients, one that is to replace it, and replaced ones that still have clients.
    processes: Vec<ServiceInstance>,
    /// The number of the process that accepts clients, or did so last.
    current: u64,
    /// The number of the next process.
    next: u64,
    /// Those of the current process.
    kept: KeptSockets,
    /// Whose processes have had them.
    kept_of: Option<User>,
    /// A restart by an administrator is under way.
    restart: Restart,
    /// The number of the last one.
    restart_number: u64,
    listens: bool,
    is_ending: bool,
}

/// A process of the service.
#[derive(Clone)]
struct ServiceInstance {
    number: u64,
    pid: u32,
    link: Arc<ServiceLink>,
    trail_changed: Arc<OwnedFd>,
    /// It has not said yet that it serves, and is ended at this time if it still has not.
    ready_by: Option<Instant>,
    /// It has handed over its sockets, and is killed at this time if it has not ended.
    ends_by: Option<Instant>,
}

/// A restart by an administrator.
enum Restart {
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
    fn begin(&mut self) -> StartSender {
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
type StartSender = Option<Sender<Result<()>>>;

/// Why a thread starts its first process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstStart {
    /// The daemon starts. An error ends it.
    OfDaemon,
    /// The process is to replace the current one.
    OfReplacement,
}

/// A process that has ended.
struct EndedInstance {
    /// `None`: it did not begin.
    number: Option<u64>,
    problem: Error,
    has_served: bool,
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

impl SupervisedState {
    fn process(&self, number: u64) -> Option<&ServiceInstance> {
        self.processes
            .iter()
            .find(|process| process.number == number)
    }

    /// The next process will not start. Whoever waits for it hears that.
    fn forget_restart(&mut self) {
        if matches!(self.restart, Restart::After(_)) {
            self.restart = Restart::No;
        }
    }

    /// Has these processes leave the clients to another one, and end.
    fn hand_over(&mut self, which: impl Fn(u64) -> bool, ends_by: Instant) {
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

    fn supervise(&self, first: FirstStart, mut started: StartSender) {
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
            if !ended.has_served || ended.problem.kind() == Kind::Protocol {
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
            ready_by: Some(Instant::now() + START_WITHIN),
            ends_by: None,
        };
        let user = process::user_of(self.name, &process::as_written(&config)).cloned();
        if now.kept_of != user && !is_beside {
            now.kept.close();
        }
        now.kept_of = user;
        let text = ToService::Configuration(config.text.to_string());
        let given = now.kept.give(&process.link);
        if let Err(error) = given.and_then(|()| process.link.tell(&text)) {
            // A process that waits for its configuration would keep the clients waiting as well.
            tracing::error!(%error, "the {} does not get its configuration", self.name);
            now.kept.close();
            process.link.close();
        }
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
    fn take_over(&self, process: &ServiceInstance, kept: KeptSockets) {
        let drain = self.running.upgrade().map_or(Duration::ZERO, |running| {
            super::drain_time(self.name, &running.config()).unwrap_or_default()
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
        if !now.listens || now.is_ending {
            now.kept.close();
        }
        if matches!(now.restart, Restart::Beside) {
            now.restart = Restart::No;
        }
        now.hand_over(|number| number != process.number, Instant::now() + drain);
        self.changed.notify_all();
    }

    /// Does what it asks for until its link ends; answers what it says of that.
    fn attend(
        &self,
        process: &ServiceInstance,
        sent: &Config,
        started: &mut StartSender,
        has_served: &mut bool,
    ) -> Option<Error> {
        let link = &process.link;
        let (mut said, mut told) = (None, None);
        let mut kept = Some(KeptSockets::default());
        let trail = Arc::clone(&self.running.upgrade()?.shared.audit);
        let mut events = ServiceEvents::new(self.name, link, &trail);
        let mut connections = ServiceConnections::default();
        loop {
            self.tell_trouble(link, &mut told)?;
            let within = match self.time_left(process.number) {
                Ok(within) => within,
                Err(late) => return Some(late),
            };
            if self.name == BROKER && trail.waiting() > MOST_WAITING && self.pause(RELIEF) {
                continue;
            }
            if !link
                .wait(process.trail_changed.as_fd(), within)
                .unwrap_or(true)
            {
                // Whatever changes after this wakes the thread again.
                let _ = rustix::io::read(&*process.trail_changed, &mut [0; 8]);
                continue;
            }
            match link.attend() {
                Ok(FromService::Listens(listening)) => {
                    let added = match &mut kept {
                        Some(kept) => kept.add(listening),
                        None => Err(Error::protocol("it has further sockets while it serves")),
                    };
                    if let Err(error) = added {
                        return Some(error);
                    }
                }
                Ok(FromService::Ready) => {
                    if let Some(kept) = kept.take() {
                        *has_served = true;
                        self.take_over(process, kept);
                        self.running.upgrade()?.service_reads(self.name, sent);
                    }
                    if let Some(started) = started.take() {
                        let _ = started.send(Ok(()));
                    }
                }
                Ok(FromService::Failed(error)) => said = Some(error),
                Ok(FromService::Record { event, kind }) => events.record(&event, kind),
                Ok(
                    FromService::Connect {
                        client: ServiceClient::Host { .. },
                        ..
                    }
                    | FromService::Refused { .. },
                ) if self.name != NODE => {
                    let message = "it speaks for other hosts, as the node alone may";
                    return Some(Error::protocol(message));
                }
                Ok(asked) => self.carry_out(asked, &mut connections)?,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return said,
                Err(error) => {
                    let message = format!("it says what nobody understands: {error}");
                    return Some(Error::protocol(message));
                }
            }
        }
    }

    /// How long its thread may wait for it. An error: it has not served, or not ended, in time.
    fn time_left(&self, number: u64) -> Result<Duration> {
        let now = self.now.lock();
        let Some(process) = now.process(number) else {
            return Ok(LOOK);
        };
        let left = |by: Option<Instant>| by.map(|by| by.saturating_duration_since(Instant::now()));
        let (ready, ends) = (left(process.ready_by), left(process.ends_by));
        if ready.is_some_and(|left| left.is_zero()) {
            return Err(self.cannot_start(&silent_for(START_WITHIN)));
        }
        if ends.is_some_and(|left| left.is_zero()) {
            let why = "it has handed over its sockets, and does not end";
            return Err(Error::lost(why));
        }
        // A wait ends up to a millisecond early.
        let nearest = [ready, ends].into_iter().flatten().min();
        let nearest = nearest.map_or(LOOK, |left| left + Duration::from_millis(1));
        Ok(nearest.min(LOOK))
    }

    /// Waits so long, or until something has changed. False if the service is to end.
    fn pause(&self, within: Duration) -> bool {
        let mut now = self.now.lock();
        if !now.is_ending {
            self.changed.wait_for(&mut now, within);
        }
        !now.is_ending
    }

    /// Tells it where keys are not used, or are used again; `None` when the daemon has gone.
    fn tell_trouble(&self, link: &ServiceLink, told: &mut Option<String>) -> Option<()> {
        let running = self.running.upgrade()?;
        let audit = &running.shared.audit;
        let why = if self.name == BROKER {
            // It refuses by itself what it has to record.
            audit.obstacle()
        } else {
            let stands = audit.wants_uses() && !audit.admits();
            stands.then(|| "keys are not used while the audit trail cannot be written".into())
        };
        if why != *told {
            told.clone_from(&why);
            if let Err(error) = link.tell(&ToService::Trouble(why)) {
                tracing::error!(%error, "the {} hears nothing", self.name);
                link.close();
            }
        }
        Some(())
    }

    /// A connection of its own.
    fn serve(&self, running: &Running, connection: UnixStream) -> Option<Admitted> {
        let taken = match &self.entrance {
            Some(entrance) => entrance
                .take(connection)
                .map_err(|error| Error::token(Kind::Busy, error.to_string())),
            None => Err(Error::request(Kind::Forbidden, "it may not use keys")),
        };
        taken
            .inspect_err(|error| running.shared.refuse_service(self.name, error))
            .ok()
    }

    /// `None` when the daemon has gone.
    fn carry_out(&self, asked: FromService, connections: &mut ServiceConnections) -> Option<()> {
        let running = self.running.upgrade()?;
        let peers = running.peers();
        let admitted = match asked {
            FromService::Connect {
                client: ServiceClient::Host { name, from },
                connection,
            } => peers.serve_from(&running, &name, &from, connection),
            FromService::Connect {
                client: ServiceClient::Service,
                connection,
            } => self.serve(&running, connection),
            FromService::Refused {
                from,
                problem,
                advice,
            } => {
                peers.refuse(&from, &problem, &advice);
                None
            }
            FromService::Listens(_)
            | FromService::Ready
            | FromService::Failed(_)
            | FromService::Record { .. } => None,
        };
        if let Some(admitted) = admitted {
            connections.add(admitted);
        }
        Some(())
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
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::os::unix::fs::symlink;

    use hsmux_audit::{Actor, Event};
    use hsmux_pool::Seat;
    use hsmux_token::Token;
    use hsmux_wire::{ListeningSocket, RecordKind};
    use rustix::net::{SocketType, sockopt};
    use serde_json::Map;

    use super::*;
    use crate::Daemon;

    fn act(name: &str) -> Vec<u8> {
        Event::act(&Arc::new(Actor::default()), name, Map::new()).to_bytes()
    }

    /// The service of the test below, in a process of its own; elsewhere the standard input is no link.
    #[test]
    fn service_process() {
        let stdin = io::stdin();
        if sockopt::socket_type(&stdin) != Ok(SocketType::SEQPACKET) {
            return;
        }
        let link = ServiceLink::of_service(stdin.as_fd().try_clone_to_owned().unwrap());
        if std::env::args().next_back().as_deref() == Some(GATEWAY) {
            let refused = FromService::Refused {
                from: "192.0.2.1:7".into(),
                problem: "none".into(),
                advice: "none".into(),
            };
            link.report(refused).unwrap();
            while link.hear().is_ok() {}
            return;
        }
        if std::env::args().next_back().as_deref() == Some(NODE) {
            // With sockets of the one before it hangs. Without any it serves, and ends.
            if matches!(link.hear(), Ok(ToService::Socket(_))) {
                while link.hear().is_ok() {}
                return;
            }
            let listens = FromService::Listens(ListeningSocket {
                name: "listen".into(),
                socket: TcpListener::bind("127.0.0.1:0").unwrap().into(),
            });
            link.report(listens).unwrap();
            return link.report(FromService::Ready).unwrap();
        }
        link.record(&act("one"), RecordKind::Event).unwrap();
        link.record(&act("two"), RecordKind::Announce(7)).unwrap();
        loop {
            match link.hear() {
                Ok(ToService::Recorded {
                    number: 7,
                    result: Ok(()),
                }) => link.report(FromService::Ready).unwrap(),
                Ok(ToService::Trouble(Some(why))) => {
                    let error = Error::pool(Kind::Environment, why);
                    return link.report(FromService::Failed(error)).unwrap();
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn daemon(folder: &std::path::Path) -> Daemon {
        let file = folder.join("hsmux.toml");
        let text = "[pool]\nlabel = \"web\"\n[daemon]\nsocket = \"hsmux.sock\"\nlogin = \"peer\"\n\
            [audit]\nkeys = true\n[[token]]\nmodule = \"/nowhere.so\"\nuri = \"pkcs11:token=a\"\n";
        fs::write(&file, text).unwrap();
        let config = hsmux_config::load(&file).unwrap_or_else(|m| panic!("{m:#?}"));
        let seat = Seat {
            name: "a".into(),
            member: "a".into(),
            weight: 1,
            timeout: Duration::from_secs(60),
            connector: Arc::new(|| Err::<Arc<dyn Token>, _>(Error::lost("no token"))),
        };
        Daemon::start_with(config, vec![seat]).unwrap()
    }

    fn program() -> ServiceProgram {
        let own = concat!(module_path!(), "::service_process");
        let (_, own) = own.split_once("::").unwrap();
        ServiceProgram {
            file: std::env::current_exe().unwrap(),
            arguments: ["--exact", own, "--nocapture"].map(str::to_owned).to_vec(),
        }
    }

    #[test]
    fn the_node_alone_speaks_for_other_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path());
        let started = ServiceSupervisor::start(GATEWAY, daemon.running(), &program());
        let error = started.err().expect("an end").to_string();
        assert!(error.contains("as the node alone may"), "{error}");
    }

    #[test]
    fn one_that_hangs_in_its_start_is_ended_and_its_sockets_are_closed() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path());
        let supervisor = ServiceSupervisor::start(NODE, daemon.running(), &program()).unwrap();
        let begun = Instant::now();
        // The second process hangs. The third gets no sockets, and serves.
        while supervisor.status().restarts < 3 {
            assert!(begun.elapsed() < LOOK * 3, "{:?}", supervisor.status());
            thread::sleep(Duration::from_millis(5));
        }
        assert!(begun.elapsed() >= START_WITHIN);
    }

    #[test]
    fn the_broker_records_on_the_trail_and_hears_at_once_that_it_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path());
        let running = daemon.running();
        // It serves when its act has been recorded.
        let supervisor = ServiceSupervisor::start(BROKER, running, &program()).unwrap();
        let file = &running.config().audit.file;
        let older = file.with_extension("1");
        fs::rename(file, &older).unwrap();
        symlink("/dev/full", file).unwrap();
        running.shared.audit.reopen().unwrap_err();
        let begun = Instant::now();
        let is_told = || {
            let problem = supervisor.status().problem;
            problem.is_some_and(|why| why.contains("No space left"))
        };
        while !is_told() {
            assert!(begun.elapsed() < LOOK / 2, "{:?}", supervisor.status());
            thread::sleep(Duration::from_millis(5));
        }
        drop(supervisor);
        fs::remove_file(file).unwrap();
        let text = fs::read_to_string(older).unwrap();
        let has = |act: &str| {
            let is_marked = |line: &str| line.contains(r#""service":"broker""#);
            text.lines()
                .any(|line| line.contains(&format!(r#""act":"{act}""#)) && is_marked(line))
        };
        assert!(has("one") && has("two"), "{text}");
    }
}
