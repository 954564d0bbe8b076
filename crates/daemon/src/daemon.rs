//! The daemon: its start, its reload, its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hsmux_audit::Trail;
use hsmux_config::{Config, Member};
use hsmux_edge::tcp_listener;
use hsmux_pool::{Options, Seat, SeatState, SeatStatus};
use hsmux_replicate::{self as replicate, Hold, Replicator};
use hsmux_token::{Error, Kind, Result};
use hsmux_traces::Traces;
use hsmux_wire::Reactor;
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::admin::{AdminRequest, until_settled};
use crate::audit::{self, Who};
use crate::changes::{self, load, load_to_replace};
use crate::dkek::DkekReplicator;
use crate::hot_plug::HotPlug;
use crate::lock::StateLock;
use crate::login::LoginGate;
use crate::members;
use crate::notify::{notify, reloading};
use crate::open_listeners::OpenListeners;
use crate::parked;
use crate::peers::Peers;
use crate::refusals::Refusals;
use crate::service::DaemonContext;
use crate::services::{ServiceName, Services};
use crate::session_objects::SessionObjects;
use crate::settings::users;

/// How long what runs may take to end, when the daemon does.
const DRAIN: Duration = Duration::from_secs(10);

/// A running daemon. Dropping it ends it: listeners first, then what runs, then the workers.
pub struct Daemon {
    running: Arc<Running>,
    events: Receiver<ControlEvent>,
    _hot_plug: HotPlug,
    _lock: StateLock,
}

/// What a daemon is made of.
pub struct Running {
    /// Pool, audit trail and so on, which the listeners share.
    pub shared: Arc<DaemonContext>,
    /// The configuration file.
    pub file: PathBuf,
    /// When it was started.
    pub started: Instant,
    pub(crate) listeners: OpenListeners,
    /// Services that are processes of their own.
    pub services: Services,
    config: ArcSwap<Config>,
    problem: Mutex<Option<String>>,
    administrators: ArcSwap<Vec<u32>>,
    events: Mutex<Sender<ControlEvent>>,
    turn: Mutex<()>,
    /// Held while the record of what is parked is written.
    parking: Mutex<()>,
}

/// An event that wakes the main thread.
#[derive(Clone, Copy, Debug)]
pub enum ControlEvent {
    /// SIGHUP, SIGTERM or SIGINT.
    Signal(i32),
    /// An administrator's word, which is on the trail already.
    Stop,
}

impl Daemon {
    /// Reads the configuration, starts the pool, listens. Blocks until each member was tried once,
    /// but for three seconds at most; a member that does not come is no error.
    pub fn start(file: &Path) -> Result<Self> {
        let config = load(file)?;
        // A user's share of the files is to leave some for others and for workers.
        tcp_listener::files();
        let seats = hsmux_worker::worker_seats(&config, &members::worker(&config)?);
        // The one that the workers answer on: a request is one thread's work from end to end.
        let reactor = Reactor::shared()?;
        // Beside a broker, a gateway or a node the CPU that it would stay awake on is theirs.
        if config.broker.is_none() && config.gateway.is_none() && config.node.is_none() {
            reactor.use_busy_polling();
        }
        Self::start_on(reactor, config, seats)
    }

    /// The same with seats from elsewhere: a configuration of members that are not tokens.
    pub fn start_with(config: Config, seats: Vec<Seat>) -> Result<Self> {
        Self::start_on(Reactor::start()?, config, seats)
    }

    fn start_on(reactor: Arc<Reactor>, config: Config, seats: Vec<Seat>) -> Result<Self> {
        let lock = StateLock::take(&config.state)?;
        let audit = Arc::new(Trail::open(&audit::settings(&config))?);
        let traces = Arc::new(Traces::start(config.traces.as_ref())?);
        let cards = Some(Arc::new(DkekReplicator::default()) as Arc<dyn Replicator>);
        let options = Options {
            parked: parked::load(&config.state),
            ..Options::from(&config)
        };
        let (pool, writer) = replicate::start(options, seats, Hold::Always, cards)?;
        let mut boot = [0; 8];
        getrandom::fill(&mut boot)
            .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
        let shared = Arc::new(DaemonContext {
            pool,
            writer,
            gate: LoginGate::start()?,
            refusals: Refusals::new(&audit),
            audit,
            traces,
            session_objects: SessionObjects::default(),
            boot: u64::from_le_bytes(boot),
        });
        let (tell, events) = channel();
        let running = Arc::new(Running {
            listeners: OpenListeners::new(reactor),
            services: Services::default(),
            shared,
            file: config.file.clone(),
            started: Instant::now(),
            problem: Mutex::new(None),
            administrators: ArcSwap::from_pointee(users(&config.admin.socket.allow_users)),
            config: ArcSwap::from_pointee(config),
            events: Mutex::new(tell),
            turn: Mutex::new(()),
            parking: Mutex::new(()),
        });
        running.listeners.open(&running)?;
        if let Err(error) = running.forget_those_that_have_gone() {
            tracing::warn!(%error, "names of parked members that have gone are still on record");
        }
        Ok(Self {
            _hot_plug: HotPlug::start(&running)?,
            running,
            events,
            _lock: lock,
        })
    }

    /// Serves until SIGTERM, SIGINT or an administrator ends it; SIGHUP reads the configuration again.
    pub fn run(&self) -> Result<()> {
        let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT])
            .map_err(|e| Error::pool(Kind::Environment, format!("signals: {e}")))?;
        let handle = signals.handle();
        let running = Arc::clone(&self.running);
        let forwarder = thread::spawn(move || {
            for signal in signals.forever() {
                running.tell(ControlEvent::Signal(signal));
            }
        });
        notify("READY=1");
        self.running.tell_whether_it_serves();
        while let Ok(ControlEvent::Signal(signal)) = self.events.recv() {
            if signal != SIGHUP {
                self.running.on_signal(signal, &AdminRequest::Stop, &Ok(()));
                break;
            }
            reloading();
            // A failure is in the log, the trail and the status; the daemon goes on as it was.
            let result = self.running.reload().map(drop);
            let outcome = result.map_err(|error| error.to_string());
            self.running
                .on_signal(signal, &AdminRequest::Reload, &outcome);
            notify("READY=1");
        }
        notify("STOPPING=1");
        handle.close();
        let _ = forwarder.join();
        Ok(())
    }

    /// The parts of the daemon, for tests and for programs that start it themselves.
    pub fn running(&self) -> &Arc<Running> {
        &self.running
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        tracing::info!("the daemon stops");
        self.running.services.stop_listening();
        self.running.services.drain(&self.running.config());
        self.running.listeners.close();
        let pool = &self.running.shared.pool;
        let end = Instant::now() + DRAIN;
        let busy = || {
            let status = pool.status();
            status.waiting > 0 || status.seats.iter().any(|seat| seat.in_flight > 0)
        };
        while busy() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        // What other hosts have asked is answered before their connections end.
        self.running.services.end();
        pool.stop();
        self.running.shared.refusals.sum_up(true);
        // Connections that are open still hold it.
        self.running.shared.audit.close();
        self.running.shared.traces.finish();
    }
}

impl Running {
    /// The configuration as it is in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Why the file as it is now could not be taken over.
    pub fn config_error(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// Other hosts that may use this one's tokens.
    pub fn peers(&self) -> &Peers {
        &self.listeners.peers
    }

    /// Users who may administer besides root and the daemon's own.
    pub fn administrators(&self) -> Arc<Vec<u32>> {
        self.administrators.load_full()
    }

    /// A start is no success where nobody is served.
    fn tell_whether_it_serves(&self) {
        let seats = self.shared.pool.status().seats;
        let serving = |seat: &SeatStatus| seat.state == SeatState::InService;
        let mut lacks = Vec::new();
        if !seats.iter().any(serving) {
            lacks.push("no member is in service yet");
        }
        if self.listeners.nobody_can_log_in() {
            lacks.push("no listener has a PIN that it could compare with");
        }
        let config = self.file.display();
        match &lacks[..] {
            [] => tracing::info!(%config, "the daemon serves"),
            lacks => tracing::warn!(
                %config,
                "the daemon runs and serves nobody: {}; hsmux doctor says what to do",
                lacks.join(", and ")
            ),
        }
    }

    /// Wakes the main thread.
    pub fn tell(&self, event: ControlEvent) {
        // Nobody listens any more: then it ends already.
        let _ = self.events.lock().send(event);
    }

    /// The trail's line for what a signal asks; the kernel does not say who sent it.
    fn on_signal(&self, signal: i32, request: &AdminRequest, outcome: &Result<(), String>) {
        let program = format!("signal {}", signal_name(signal).unwrap_or("unknown"));
        let who = Who::here(rustix::process::geteuid().as_raw(), program);
        let event = audit::ended(&who, request, outcome);
        if let Err(error) = self.shared.audit.commit(event) {
            tracing::error!(%error, "a signal is not on the audit trail");
        }
    }

    /// Reads the PINs of the listeners again, which may be in files of members that have new ones.
    pub fn refresh_pins(&self) -> Result<()> {
        let _turn = self.turn.lock();
        self.listeners.change(self, &self.config()).map(drop)
    }

    /// Reads the configuration again and takes over what has changed; answers what that was. With
    /// a mistake in the file, or a socket that cannot be made, all stays as it is. Two errors keep nothing else from
    /// being taken over: a file of a site that is not there, and a trail that cannot be written, for what `[audit]` says
    /// by now may be the way out.
    pub fn reload(self: &Arc<Self>) -> Result<Vec<String>> {
        let _turn = self.turn.lock();
        let reopened = self.shared.audit.reopen();
        let file = load_to_replace(&self.config(), &self.file);
        let result = file.and_then(|(file, of_sites)| Ok((self.take_over(&file)?, of_sites)));
        let (changes, of_sites) = result.inspect_err(|error| {
            tracing::error!(%error, "the configuration stays as it was");
            *self.problem.lock() = Some(error.to_string());
        })?;
        let lines = changes.join("; ");
        tracing::info!(changes = lines, "the configuration was read again");
        let left = (!of_sites.is_empty()).then(|| changes::without_sites(&of_sites, &changes));
        if let Some(error) = &left {
            tracing::error!(%error, "not all sites were taken over");
        }
        *self.problem.lock() = left.as_ref().map(ToString::to_string);
        reopened
            .map_err(|error| error.at("the configuration was taken over, but not all is well"))?;
        left.map_or(Ok(changes), Err)
    }

    fn take_over(self: &Arc<Self>, file: &Config) -> Result<Vec<String>> {
        let old = self.config();
        let new = changes::what_can_change(&old, file);
        let worker = members::worker(&new)?;
        let traces = &self.shared.traces;
        let others = new.traces != old.traces;
        // The collector's roots may be others under the same name.
        let anew = others || new.traces.iter().any(|traces| traces.ca.is_some());
        let source = anew.then(|| traces.prepare(new.traces.as_ref()));
        let source = source.transpose()?;
        let mut lines = self.listeners.change(self, &new)?;
        lines.extend(changes::taken_over(&old, &new));
        lines.extend(changes::with_a_restart(&new, file));
        if let Some(source) = source {
            traces.change(source);
            lines.extend(others.then(|| "traces changed".to_owned()));
        }
        self.shared.audit.change(&audit::settings(&new));
        // The rights, and the uses to be recorded, may have changed.
        self.shared.pool.end_direct();
        let administrators = users(&new.admin.socket.allow_users);
        self.administrators.store(Arc::new(administrators));
        lines.extend(members::change(&self.shared.pool, &old, &new, &worker));
        if let Err(error) = self.keep_parked() {
            lines.push(error.to_string());
        }
        self.config.store(Arc::new(new));
        // After that: who comes now is let in by what is new.
        self.peers().change(&self.config());
        self.services.change(&self.config());
        Ok(lines)
    }

    /// Restarts a service. Its section is then in force as the last reload read it.
    pub(crate) fn restart_service(&self, service: ServiceName) -> Result<String> {
        self.services.restart(service, &self.config())
    }

    /// A new process of this service serves. It has the whole section of the configuration that it was sent.
    pub(crate) fn service_reads(&self, service: &str, sent: &Config) {
        let _turn = self.turn.lock();
        let config = changes::with_service(&self.config(), service, sent);
        self.config.store(Arc::new(config));
    }

    /// Has what is parked stay so over a restart.
    pub fn keep_parked(&self) -> Result<()> {
        let _turn = self.parking.lock();
        parked::save(&self.config().state, &self.shared.pool.parked())
    }

    /// Takes names out of the record that no member has any longer, as the pool has at its start.
    fn forget_those_that_have_gone(&self) -> Result<()> {
        if parked::load(&self.config().state) == self.shared.pool.parked() {
            return Ok(());
        }
        self.keep_parked()
    }

    /// Takes a member out of service until it is added again, or until the next reload or start.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.shared.pool.remove(name)?;
        self.shared.pool.forget_parked(name);
        self.keep_parked()
    }

    /// Puts a member of the file into service: a new one, or one that was removed. One that does not come into
    /// service is out of the pool again.
    pub fn add(self: &Arc<Self>, name: &str) -> Result<String> {
        let before = self.begin(name)?;
        until_settled(&self.shared.pool, name).or_else(|error| {
            self.take_back(name, before);
            self.remove(name)?;
            Err(members::not_added(error))
        })
    }

    /// Answers what the configuration in force had under the member's name.
    fn begin(self: &Arc<Self>, name: &str) -> Result<Option<Member>> {
        let _turn = self.turn.lock();
        let new = load(&self.file)?;
        let member = new.member(name).ok_or_else(|| {
            let file = self.file.display();
            let message =
                format!("{file} has no [[token]] of the name {name}; to add one: hsmux token add {name} --module FILE --uri URI");
            Error::request(Kind::Invalid, message)
        })?;
        members::add(&self.shared.pool, &new, member)?;
        let mut config = Config::clone(&self.config());
        let before = config.member(name).cloned();
        config.tokens.retain(|other| other.name != name);
        config.tokens.push(member.clone());
        self.config.store(Arc::new(config));
        Ok(before)
    }

    /// The configuration in force has under this name what it had before.
    fn take_back(&self, name: &str, before: Option<Member>) {
        let _turn = self.turn.lock();
        let mut config = Config::clone(&self.config());
        config.tokens.retain(|other| other.name != name);
        config.tokens.extend(before);
        self.config.store(Arc::new(config));
    }
}
