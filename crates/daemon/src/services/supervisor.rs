//! One service: a thread that starts its process, attends to what it says, and starts it again when it has ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hsmux_config::Config;
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{Entrance, FromService, ServiceClient, ServiceLink, ToService};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

use super::events::ServiceEvents;
use super::restarts::Restarts;
use super::{BROKER, NODE, ServiceProgram, ServiceState, ServiceStatus, process};
use crate::daemon::Running;
use crate::settings::Clients;

/// How often it is looked whether keys are used, though the trail has said nothing.
const LOOK: Duration = Duration::from_secs(10);

/// While more lines wait on the trail, the broker's events are not read: a broker that was taken over could fill the
/// trail's queue, and stop the use of all keys.
const MOST_WAITING: usize = 4096;

/// How long they are not read then.
const RELIEF: Duration = Duration::from_millis(5);

/// How long its first start may take.
const START_WITHIN: Duration = Duration::from_secs(30);

/// A service under supervision. Dropping it ends it, and waits for that.
pub struct ServiceSupervisor {
    service: Arc<SupervisedService>,
    thread: Option<JoinHandle<()>>,
}

struct SupervisedService {
    name: &'static str,
    program: ServiceProgram,
    running: Weak<Running>,
    /// Where its connections come in, if it uses keys itself.
    entrance: Option<Entrance>,
    now: Mutex<SupervisedState>,
    changed: Condvar,
    /// Readable when keys may not be used any more, or again.
    trail_changed: Arc<OwnedFd>,
}

/// The state of a supervised service.
struct SupervisedState {
    status: ServiceStatus,
    link: Option<Arc<ServiceLink>>,
    listens: bool,
    is_ending: bool,
}

/// The channel for the result of the first start.
type StartSender = Option<Sender<Result<()>>>;

impl ServiceSupervisor {
    /// Starts it, and waits until it serves or cannot.
    pub fn start(
        name: &'static str,
        running: &Arc<Running>,
        program: &ServiceProgram,
    ) -> Result<Self> {
        let failed = |why: &dyn std::fmt::Display| {
            Error::pool(Kind::Environment, format!("the {name} cannot start: {why}"))
        };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let trail_changed = Arc::new(eventfd(0, flags).map_err(|e| failed(&e))?);
        let seen = Arc::clone(&trail_changed);
        // The observer must not wait, so it only wakes the thread. A full counter is as good as a written one.
        running.shared.audit.observe(Box::new(move || {
            let _ = rustix::io::write(&*seen, &1_u64.to_ne_bytes());
        }));
        let service = Arc::new(SupervisedService {
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
                link: None,
                listens: true,
                is_ending: false,
            }),
            changed: Condvar::new(),
        });
        let (tell, told) = channel();
        let thread = {
            let service = Arc::clone(&service);
            let thread = thread::Builder::new().name(format!("hsmux-{name}"));
            thread.spawn(move || service.supervise(Some(tell)))
        };
        let thread = Some(thread.map_err(|e| failed(&e))?);
        let supervisor = Self { service, thread };
        match told.recv_timeout(START_WITHIN) {
            Ok(started) => started.map(|()| supervisor),
            Err(_) => Err(failed(&format!(
                "it says nothing within {} s",
                START_WITHIN.as_secs()
            ))),
        }
    }

    /// Another configuration is in force.
    pub fn tell_configuration(&self, new: &Config) {
        let text = new.text.to_string();
        self.service.tell(&ToService::Configuration(text));
    }

    /// No new clients.
    pub fn stop_listening(&self) {
        self.service.now.lock().listens = false;
        self.service.tell(&ToService::StopListening);
    }

    /// Ends it, without waiting for that.
    pub fn begin_end(&self) {
        let mut now = self.service.now.lock();
        now.is_ending = true;
        if let Some(link) = &now.link {
            link.close();
        }
        self.service.changed.notify_all();
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.service.name
    }

    /// Waits for its end; whether it has ended.
    pub fn has_ended_by(&self, until: Instant) -> bool {
        let mut now = self.service.now.lock();
        while now.status.state != ServiceState::Ended {
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
        self.begin_end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a service that uses keys itself may do.
fn clients_of(name: &str) -> Option<Clients> {
    match name {
        super::GATEWAY => Some(Clients::Gateway),
        BROKER => Some(Clients::Broker),
        _ => None,
    }
}

impl SupervisedService {
    fn supervise(&self, mut started: StartSender) {
        let mut restarts = Restarts::default();
        loop {
            let begun = Instant::now();
            let problem = self.live(&mut started);
            let mut now = self.now.lock();
            now.status.state = ServiceState::Ended;
            now.status.pid = None;
            now.status.problem = Some(problem.to_string());
            self.changed.notify_all();
            if let Some(started) = started.take() {
                let _ = started.send(Err(problem));
                return;
            }
            if now.is_ending || !now.listens {
                return;
            }
            let pause = restarts.pause(begun.elapsed());
            tracing::error!(
                "the {} has ended: {problem}; it is started again in {} ms",
                self.name,
                pause.as_millis()
            );
            let until = Instant::now() + pause;
            while !now.is_ending && !self.changed.wait_until(&mut now, until).timed_out() {}
            if now.is_ending || !now.listens {
                return;
            }
            now.status.restarts += 1;
            now.status.state = ServiceState::Starting;
        }
    }

    /// From a start to the end after it; answers why it has ended.
    fn live(&self, started: &mut StartSender) -> Error {
        let (child, link) = match self.begin() {
            Ok(begun) => begun,
            Err(error) => {
                let program = self.program.file.display();
                let message = format!("the {} cannot be started ({program}): {error}", self.name);
                return Error::pool(Kind::Environment, message);
            }
        };
        let said = self.attend(&link, started);
        self.now.lock().link = None;
        link.close();
        let fate = process::end(child);
        said.unwrap_or_else(|| Error::lost(fate))
    }

    fn begin(&self) -> io::Result<(Child, Arc<ServiceLink>)> {
        let running = self.running.upgrade();
        let running = running.ok_or_else(|| io::Error::other("the daemon stops"))?;
        // Whoever changes the configuration meanwhile tells it after this.
        let mut now = self.now.lock();
        let config = running.config();
        let (child, link) = process::start(&self.program, self.name, &config)?;
        let link = Arc::new(link);
        now.status.pid = Some(child.id());
        // An error is seen by whoever attends to it.
        let _ = link.tell(&ToService::Configuration(config.text.to_string()));
        now.link = Some(Arc::clone(&link));
        if now.is_ending || !now.listens {
            link.close();
        }
        Ok((child, link))
    }

    /// Does what it asks for until its link ends; answers what it says of that.
    fn attend(&self, link: &Arc<ServiceLink>, started: &mut StartSender) -> Option<Error> {
        let (mut said, mut told) = (None, None);
        let trail = Arc::clone(&self.running.upgrade()?.shared.audit);
        let mut events = ServiceEvents::new(self.name, link, &trail);
        loop {
            self.tell_trouble(link, &mut told)?;
            if self.name == BROKER && trail.waiting() > MOST_WAITING && self.pause(RELIEF) {
                continue;
            }
            if !link.wait(self.trail_changed.as_fd(), LOOK).unwrap_or(true) {
                // Whatever changes after this wakes the thread again.
                let _ = rustix::io::read(&*self.trail_changed, &mut [0; 8]);
                continue;
            }
            match link.attend() {
                Ok(FromService::Ready) => {
                    self.now.lock().status.state = ServiceState::Serving;
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
                Ok(asked) => self.carry_out(asked)?,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return said,
                Err(error) => {
                    let message = format!("it says what nobody understands: {error}");
                    return Some(Error::protocol(message));
                }
            }
        }
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
    fn serve(&self, running: &Running, connection: UnixStream) {
        let taken = match &self.entrance {
            Some(entrance) => entrance
                .take(connection)
                .map_err(|error| Error::token(Kind::Busy, error.to_string())),
            None => Err(Error::request(Kind::Forbidden, "it may not use keys")),
        };
        if let Err(error) = taken {
            running.shared.refuse_service(self.name, &error);
        }
    }

    /// `None` when the daemon has gone.
    fn carry_out(&self, asked: FromService) -> Option<()> {
        let running = self.running.upgrade()?;
        let peers = running.peers();
        match asked {
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
            } => peers.refuse(&from, &problem, &advice),
            FromService::Ready | FromService::Failed(_) | FromService::Record { .. } => {}
        }
        Some(())
    }

    /// Tells it, if it is there. One that has no room for more hears nothing any more: it is ended, and started again.
    fn tell(&self, message: &ToService) {
        let now = self.now.lock();
        let Some(link) = &now.link else { return };
        if let Err(error) = link.tell(message) {
            tracing::error!(%error, "the {} hears nothing", self.name);
            link.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use hsmux_audit::{Actor, Event};
    use hsmux_pool::Seat;
    use hsmux_token::Token;
    use hsmux_wire::RecordKind;
    use rustix::net::{SocketType, sockopt};
    use serde_json::Map;

    use super::super::GATEWAY;
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
