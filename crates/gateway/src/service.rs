//! Start and shutdown.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use hsmux_config::GatewaySection;
use hsmux_edge::access_log::AccessLog;
use hsmux_edge::tcp_listener;
use hsmux_service::{Daemon, DaemonPool, Queueing, ServiceProcess};
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::Reactor;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::acceptor::ListenerKind;
use crate::app_state::AppState;
use crate::file_budget::FileBudget;
use crate::http::BlockingReads;
use crate::memory::MemoryBudget;
use crate::metrics::{CloseReason, Metrics};
use crate::phase::{Phase, Phases};
use crate::signatures::{Signatures, share};
use crate::site_watcher::SiteWatcher;
use crate::sites::SiteReader;
use crate::source::SourceSlots;
use crate::ticket_key_rotation::TicketKeyRotation;
use crate::{monitor, plain, reservation, tls};

/// The tasks that accept connections, one for each socket.
#[derive(Default)]
struct AcceptTasks {
    /// Those of clients.
    clients: Vec<JoinHandle<()>>,
    /// That of `/metrics` and `/health`.
    monitor: Option<JoinHandle<()>>,
}

/// A running gateway. Dropping it drains it: it accepts no new connections, and ends when the open ones have.
pub struct Gateway {
    app: Arc<AppState>,
    phase: watch::Sender<Phase>,
    accepting: AcceptTasks,
    runtime: Option<Runtime>,
}

impl ServiceProcess for Gateway {
    /// Reads certificates and keys, opens the sockets, and serves. Sites are reloaded while it runs; all else needs a
    /// restart.
    fn start(daemon: &Arc<Daemon>) -> Result<Self> {
        let config = daemon.config();
        let section = config.gateway.as_ref();
        let section = section.ok_or_else(|| Error::protocol("there is no [gateway]"))?;
        plain::check(section).map_err(|e| failed("acme", &e))?;
        let runtime = Builder::new_multi_thread()
            .thread_name("hsmux-gateway")
            .enable_all()
            .build()
            .map_err(|e| failed("threads", &e))?;
        let reactor = Reactor::without_thread()?;
        runtime.spawn(hsmux_service::drive(Arc::clone(&reactor)));
        let DaemonPool {
            pool, estimates, ..
        } = hsmux_service::pool(daemon, &reactor, Queueing::InService)?;
        let metrics = Metrics::new()?;
        let mut watcher = SiteWatcher::new(section, &pool);
        let tickets = TicketKeyRotation::of(section, &pool, &metrics)?;
        let keys = tickets.as_ref().map(TicketKeyRotation::keys);
        let signatures = Signatures::new(section, &pool, estimates);
        let reader = SiteReader {
            section,
            signatures: &signatures,
            metrics: &metrics,
            tickets: keys,
        };
        let sites = reader.read()?;
        watcher.warn_of_certificates(&sites);
        watcher.warn_of_lists(&sites);
        let sites = Arc::new(ArcSwap::from_pointee(sites));
        let front = {
            let sites = Arc::clone(&sites);
            let tickets = tls::Resumption::of(section, keys);
            tls::front(move || sites.load_full(), tickets).map_err(|e| failed("TLS", &e))?
        };
        let sockets = Sockets::open(section, daemon)?;
        let (phase, phases) = Phases::new();
        let files = FileBudget::of(tcp_listener::files());
        let connections = section.connections.min(files.client_limit());
        let of_source =
            |own: Option<usize>, all| SourceSlots::new(own.unwrap_or_else(|| share(all)));
        let access_log = {
            let metrics = Arc::clone(&metrics);
            AccessLog::new("gateway", move |lines| metrics.lost_lines(lines))
        };
        access_log.change(section.access_log.as_ref());
        let app = Arc::new(AppState {
            access_log,
            section: section.clone(),
            pool,
            signatures,
            source_connections: of_source(section.source_connections, connections),
            source_handshakes: of_source(section.source_handshakes, section.handshakes),
            daemon: Arc::clone(daemon),
            metrics,
            sites,
            changes: watch::Sender::new(()),
            front,
            port: sockets.port(),
            tickets: keys.cloned(),
            challenge_errors: plain::ReportedErrors::default(),
            connections: Arc::new(Semaphore::new(section.connections)),
            handshakes: Arc::new(Semaphore::new(section.handshakes)),
            waiting: reservation::waiting_slots(files.backend_reserve()),
            files,
            memory: MemoryBudget::new(section.memory),
            file_cache: Arc::default(),
            reads: BlockingReads::default(),
            phases,
            handed_over: AtomicBool::new(false),
        });
        let accepting = sockets.serve(&app, &runtime)?;
        let (memory, metrics) = (Arc::clone(&app.memory), Arc::clone(&app.metrics));
        runtime.spawn(memory.watch(move || metrics.closed(CloseReason::Memory)));
        let current = {
            let daemon = Arc::clone(daemon);
            move || daemon.config().gateway.clone()
        };
        runtime.spawn(watcher.run(Arc::clone(&app), current));
        tickets.map(|tickets| runtime.spawn(tickets.run()));
        Ok(Self {
            app,
            phase,
            accepting,
            runtime: Some(runtime),
        })
    }

    fn stop_listening(self) -> Option<Self> {
        drop(self);
        None
    }

    /// It accepts nothing more at once, for the other process does. Balancers are to notice nothing.
    fn hand_over(mut self) {
        self.app.handed_over.store(true, Ordering::Relaxed);
        let AcceptTasks { clients, monitor } = std::mem::take(&mut self.accepting);
        for task in clients.into_iter().chain(monitor) {
            task.abort();
        }
        let notice = HAND_OVER_NOTICE.max(self.app.section.leave_time / 2);
        self.end(&[(Phase::LastAnswers, notice)]);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let notice = self.app.section.leave_time / 2;
        self.end(&[(Phase::Leaving, notice), (Phase::LastAnswers, notice)]);
    }
}

/// After a hand-over, each answer of HTTP/1.1 is the last of its connection for so long at least. Idle connections are
/// closed after that.
const HAND_OVER_NOTICE: Duration = Duration::from_secs(1);

impl Gateway {
    /// Goes through the phases. It waits for the slots of all connections only after the listeners have ended: the wait
    /// would leave none to a new client.
    fn end(&mut self, first: &[(Phase, Duration)]) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        for (phase, lasts) in first {
            let _ = self.phase.send(*phase);
            std::thread::sleep(*lasts);
        }
        let _ = self.phase.send(Phase::Draining);
        let section = &self.app.section;
        let drain = section.drain_timeout;
        let listeners = std::mem::take(&mut self.accepting.clients);
        let ended = async {
            for listener in listeners {
                let _ = listener.await;
            }
            let all = u32::try_from(section.connections).unwrap_or(u32::MAX);
            let places = self.app.connections.acquire_many(all);
            // It never fails: the semaphore is not closed.
            timeout(drain, places).await.is_ok()
        };
        if !runtime.block_on(ended) {
            tracing::warn!("the gateway ends while requests run that took longer than {drain:?}");
        }
        let _ = self.phase.send(Phase::Closing);
        runtime.shutdown_timeout(Duration::from_secs(1));
        self.app.access_log.close();
    }
}

/// The open sockets.
struct Sockets {
    tls: Vec<StdListener>,
    plain: Vec<StdListener>,
    monitor: Option<StdListener>,
}

impl Sockets {
    fn open(section: &GatewaySection, daemon: &Daemon) -> Result<Self> {
        let listen = |key, address| listen(daemon, key, address);
        let all = |key, addresses: &[SocketAddr]| {
            let each = addresses.iter().map(|address| listen(key, *address));
            each.collect::<Result<_>>()
        };
        let monitor = section.metrics.map(|address| listen("metrics", address));
        Ok(Self {
            tls: all("listen", &section.listen)?,
            plain: all("http", &section.http)?,
            monitor: monitor.transpose()?,
        })
    }

    /// The port of the first socket for TLS.
    fn port(&self) -> u16 {
        self.tls.first().and_then(at).map_or(0, |at| at.port())
    }

    /// Starts the tasks that accept connections.
    fn serve(self, app: &Arc<AppState>, runtime: &Runtime) -> Result<AcceptTasks> {
        let addresses: Vec<_> = self.tls.iter().filter_map(at).collect();
        let http: Vec<_> = self.plain.iter().filter_map(at).collect();
        let metrics = self.monitor.as_ref().and_then(at);
        let _inside = runtime.enter();
        let open = |listener| TcpListener::from_std(listener).map_err(|e| failed("a socket", &e));
        let mut clients = Vec::new();
        for (kind, listeners) in [
            (ListenerKind::Tls, self.tls),
            (ListenerKind::Plain, self.plain),
        ] {
            for listener in listeners {
                let listen = Arc::clone(app).listen(kind, open(listener)?);
                clients.push(runtime.spawn(listen));
            }
        }
        let monitor = self.monitor.map(open).transpose()?;
        let monitor =
            monitor.map(|listener| runtime.spawn(monitor::serve(Arc::clone(app), listener)));
        tracing::info!(?addresses, ?metrics, ?http, "the gateway serves");
        Ok(AcceptTasks { clients, monitor })
    }
}

fn at(listener: &StdListener) -> Option<SocketAddr> {
    listener.local_addr().ok()
}

fn listen(daemon: &Daemon, key: &str, address: SocketAddr) -> Result<StdListener> {
    daemon.listen(key, address).map_err(|error| {
        let port = address.port();
        let hint = match error.kind() {
            ErrorKind::AddrInUse => format!("; `ss -ltnp sport = :{port}` says who has it"),
            ErrorKind::AddrNotAvailable => "; `ip address` says which this host has".to_owned(),
            ErrorKind::PermissionDenied => {
                "; ports below 1024 need CAP_NET_BIND_SERVICE: docs/gateway.md, \"As a service\""
                    .to_owned()
            }
            _ => String::new(),
        };
        failed(&format!("{key} {address}"), &format!("{error}{hint}"))
    })
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::pool(Kind::Environment, format!("[gateway] {what}: {error}"))
}
