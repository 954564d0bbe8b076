//! Start and end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hsmux_config::BrokerSection;
use hsmux_edge::tcp_listener;
use hsmux_edge::unix_listener::SocketFile;
use hsmux_service::{Daemon, LinkRecorder, Queueing, ServiceProcess};
use hsmux_token::{Error, Kind, Result};
use hsmux_traces::Traces;
use hsmux_wire::Reactor;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::change_watcher::ChangeWatcher;
use super::connections::Connections;
use super::listen::{AppState, Listener};
use super::tls::Https;
use super::{Broker, ReadDaemon, app};
use crate::engine::{Engine, Submit};
use crate::policy::Policy;
use crate::store::Store;

/// A running broker. Dropping it ends it: first it refuses new requests, then it waits for the running ones.
pub struct BrokerService {
    broker: Arc<Broker>,
    recorder: Arc<LinkRecorder>,
    addresses: Vec<SocketAddr>,
    /// The file of the unix socket.
    file: Option<Arc<SocketFile>>,
    connections: Arc<Connections>,
    end: watch::Sender<bool>,
    closing: watch::Sender<bool>,
    /// Wakes the watcher of changes.
    changes: watch::Sender<()>,
    serving: Option<(Runtime, JoinSet<()>)>,
}

/// The time in which answers close their connections, before idle connections are closed: a client that always has
/// requests learns to ask elsewhere.
const CLOSE_NOTICE: Duration = Duration::from_millis(500);

impl ServiceProcess for BrokerService {
    /// Opens the store and the sockets, and serves. Policies, limits, certificates and issuers are reloaded while it
    /// runs; all else needs a restart.
    fn start(daemon: &Arc<Daemon>) -> Result<Self> {
        let config = daemon.config();
        let section = config.broker.as_ref();
        let section = section.ok_or_else(|| Error::protocol("there is no [broker]"))?;
        let runtime = Builder::new_multi_thread()
            .thread_name("hsmux-broker")
            .enable_all()
            .build()
            .map_err(|e| {
                Error::pool(Kind::Environment, format!("no threads for the broker: {e}"))
            })?;
        let reactor = Reactor::without_thread()?;
        runtime.spawn(hsmux_service::drive(Arc::clone(&reactor)));
        let recorder = LinkRecorder::start(daemon)?;
        let store = Arc::new(Store::open(&section.store)?);
        let pool = Arc::new(hsmux_service::pool(daemon, &reactor, Queueing::InDaemon)?);
        let daemons = Arc::clone(&pool);
        let submit: Submit = Box::new(move |request| Box::new(daemons.submit(request)));
        let engine = Engine::start(Arc::clone(&pool.pool), submit, store, recorder.clone())?;
        let policy = Policy::new(section.policies.clone(), section.dev);
        let traces = Arc::new(Traces::start(config.traces.as_ref())?);
        let readings: ReadDaemon = Arc::new(move || pool.readings());
        let limits = section.limits.clone();
        let broker = Broker::new(engine, policy, recorder.clone(), limits, traces, readings)?;
        broker.trust.refresh(section.jwt.as_ref())?;
        broker.open_metrics(section.metrics);
        broker.access_log.change(section.access_log.as_ref());
        let https = section.tls.as_ref().map(Https::start).transpose()?;
        let https = https.map(Arc::new);
        let listeners = listeners(daemon, section, https.as_ref())?;
        let file = listeners.iter().find_map(Listener::file);
        let addresses = listeners.iter().filter_map(Listener::address).collect();
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
        let daemon = Arc::clone(daemon);
        let watch = ChangeWatcher::new(Arc::clone(&broker), daemon, https, section.clone());
        let (changes, watched) = watch::channel(());
        runtime.spawn(watch.run(watched));
        let service = Self {
            broker,
            recorder,
            addresses,
            file,
            connections,
            end,
            closing,
            changes,
            serving: Some((runtime, serving)),
        };
        service.announce(section);
        Ok(service)
    }

    fn changed(&self) {
        self.changes.send_replace(());
    }

    fn stop_listening(self) -> Option<Self> {
        drop(self);
        None
    }

    /// It accepts nothing more at once: clients wait for the next process, which starts when the store is free.
    fn hand_over(mut self) {
        if let Some(file) = &self.file {
            file.leave();
        }
        if let Some((_, serving)) = &mut self.serving {
            serving.abort_all();
        }
    }

    fn terminate(self) {
        self.hand_over();
    }
}

impl BrokerService {
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
            self.broker.traces.finish();
            self.recorder.close();
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

fn listeners(
    daemon: &Daemon,
    section: &BrokerSection,
    https: Option<&Arc<Https>>,
) -> Result<Vec<Listener>> {
    let tcp = section.listen.iter();
    let mut listeners: Vec<_> = tcp
        .map(|address| Listener::tcp(daemon, *address, https.cloned()))
        .collect::<Result<_>>()?;
    if let Some(socket) = &section.socket {
        listeners.push(Listener::unix(daemon, socket)?);
    }
    if listeners.is_empty() {
        let message =
            "[broker] listens nowhere: give listen = [\"127.0.0.1:8200\"] or socket = ...";
        return Err(Error::pool(Kind::Environment, message));
    }
    Ok(listeners)
}
