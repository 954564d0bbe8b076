//! Start and end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hsmux_audit::Recorder;
use hsmux_config::BrokerSection;
use hsmux_edge::tcp_listener;
use hsmux_pool::{Pool, RuntimeState, RuntimeWatchdog, serving_threads};
use hsmux_token::{Error, Kind, Result};
use hsmux_traces::Traces;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::change_watcher::ChangeWatcher;
use super::connections::Connections;
use super::listen::{AppState, Listener};
use super::tls::Https;
use super::{AuditStatus, Broker, app};
use crate::engine::Engine;
use crate::policy::Policy;
use crate::store::Store;

/// A running broker with threads of its own. Dropping it ends it: first it refuses new requests, then it waits for
/// the running ones.
pub struct BrokerService {
    broker: Arc<Broker>,
    addresses: Vec<SocketAddr>,
    connections: Arc<Connections>,
    end: watch::Sender<bool>,
    closing: watch::Sender<bool>,
    serving: Option<(Runtime, JoinSet<()>)>,
    _watchdog: RuntimeWatchdog,
}

/// The time in which answers close their connections, before idle connections are closed: a client that always has
/// requests learns to ask elsewhere.
const CLOSE_NOTICE: Duration = Duration::from_millis(500);

impl BrokerService {
    /// Opens the store and the sockets, and serves. `current` gives the current configuration: policies, limits,
    /// certificates and issuers are reloaded, all else needs a restart.
    pub fn start(
        section: &BrokerSection,
        pool: Arc<Pool>,
        audit: Arc<dyn Recorder>,
        audit_status: AuditStatus,
        traces: Arc<Traces>,
        current: impl Fn() -> Option<BrokerSection> + Send + Sync + 'static,
    ) -> Result<Self> {
        let store = Arc::new(Store::open(&section.store)?);
        let engine = Engine::start(pool, store, Arc::clone(&audit))?;
        let policy = Policy::new(section.policies.clone(), section.dev);
        let limits = section.limits.clone();
        let broker = Broker::new(engine, policy, audit, audit_status, limits, traces)?;
        broker.trust.refresh(section.jwt.as_ref())?;
        broker.open_metrics(section.metrics);
        broker.access_log.change(section.access_log.as_ref());
        let https = section
            .tls
            .as_ref()
            .map(Https::start)
            .transpose()?
            .map(Arc::new);
        let listeners = listeners(section, https.as_ref())?;
        let addresses = listeners.iter().filter_map(Listener::address).collect();
        let runtime = Builder::new_multi_thread()
            .worker_threads(serving_threads())
            .thread_name("hsmux-broker")
            .enable_all()
            .build()
            .map_err(|e| {
                Error::pool(Kind::Environment, format!("no threads for the broker: {e}"))
            })?;
        // The broker serves also while the issuer is away.
        runtime.block_on(broker.trust.keep_fresh());
        let (end, ended) = watch::channel(false);
        let (closing, closes) = watch::channel(false);
        let state = AppState {
            app: app(Arc::clone(&broker)),
            broker: Arc::clone(&broker),
            connections: Connections::new(
                section.limits.connections.min(tcp_listener::files() / 2),
            ),
            end: ended,
            closing: closes,
        };
        let connections = Arc::clone(&state.connections);
        let mut serving = JoinSet::new();
        for listener in listeners {
            let work = listener.serve(state.clone());
            let work = async {
                if let Err(error) = work.await {
                    tracing::error!(%error, "the broker does not listen");
                }
            };
            serving.spawn_on(work, runtime.handle());
        }
        let watch = ChangeWatcher::new(Arc::clone(&broker), https, section.clone());
        runtime.spawn(watch.run(current));
        let handle = runtime.handle().clone();
        let watchdog = RuntimeWatchdog::start(move |state| {
            if state == RuntimeState::Stalled {
                drop(handle.spawn(async {}));
            }
        })?;
        let service = Self {
            broker,
            addresses,
            connections,
            end,
            closing,
            _watchdog: watchdog,
            serving: Some((runtime, serving)),
        };
        service.announce(section);
        Ok(service)
    }

    /// The addresses of the listeners, with the ports that the system has chosen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The state that requests share.
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    fn announce(&self, section: &BrokerSection) {
        if section.dev {
            tracing::warn!(
                "THE BROKER IS IN DEV MODE: EVERYBODY ON THIS MACHINE MAY USE AND DELETE EVERY KEY. \
                 Take dev = true out of [broker] for anything but trying things out."
            );
        }
        let socket = section.socket.as_ref().map(|socket| socket.path.display());
        let socket = socket.map(|path| path.to_string());
        tracing::info!(addresses = ?self.addresses, ?socket, "the broker serves");
    }
}

impl Drop for BrokerService {
    fn drop(&mut self) {
        if let Some((runtime, serving)) = self.serving.take() {
            runtime.block_on(self.drain(serving));
            self.broker.sum_up(true);
            runtime.shutdown_timeout(Duration::from_secs(1));
            self.broker.access_log.close();
        }
    }
}

impl BrokerService {
    /// Ends the listeners, then new requests, then waits for running ones; the pool limits their time.
    async fn drain(&self, mut serving: JoinSet<()>) {
        let patience = self.broker.engine.pool().options().deadline;
        let _ = self.end.send(true);
        self.connections.leave();
        let accepted = async { while serving.join_next().await.is_some() {} };
        let _ = timeout(CLOSE_NOTICE, accepted).await;
        let _ = timeout(CLOSE_NOTICE, self.connections.ended()).await;
        let _ = self.closing.send(true);
        if timeout(patience, self.connections.ended()).await.is_err() {
            tracing::warn!("the broker ends while requests run that took longer than {patience:?}");
        }
    }
}

fn listeners(section: &BrokerSection, https: Option<&Arc<Https>>) -> Result<Vec<Listener>> {
    let tcp = section.listen.iter();
    let mut listeners: Vec<_> = tcp
        .map(|address| Listener::tcp(*address, https.cloned()))
        .collect::<Result<_>>()?;
    if let Some(socket) = &section.socket {
        listeners.push(Listener::unix(socket)?);
    }
    if listeners.is_empty() {
        let message =
            "[broker] listens nowhere: give listen = [\"127.0.0.1:8200\"] or socket = ...";
        return Err(Error::pool(Kind::Environment, message));
    }
    Ok(listeners)
}
