//! Start, reload, end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hsmux_audit::Trail;
use hsmux_pool::Pool;
use hsmux_pool::config::BrokerSection;
use hsmux_token::{Error, Kind, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::listen::Listener;
use super::{Broker, tls};
use crate::engine::Engine;
use crate::policy::Policy;
use crate::store::Store;

/// A running broker, with threads of its own. Dropping it ends it: no new requests, then what runs.
pub struct Service {
    broker: Arc<Broker>,
    addresses: Vec<SocketAddr>,
    end: watch::Sender<bool>,
    serving: Option<(Runtime, JoinSet<()>)>,
}

/// What runs may take so long to end.
const DRAIN: Duration = Duration::from_secs(10);

/// How often it looks for tokens of clients and keys that have come or gone.
const LOOK: Duration = Duration::from_millis(500);

impl Service {
    /// Opens the store and the sockets, and serves. `current` says what the configuration is by now: other
    /// policies are taken over, all else needs a restart.
    pub fn start(
        section: &BrokerSection,
        pool: Arc<Pool>,
        audit: Arc<Trail>,
        current: impl Fn() -> Option<BrokerSection> + Send + Sync + 'static,
    ) -> Result<Self> {
        let store = Arc::new(Store::open(&section.store)?);
        let engine = Engine::start(pool, store)?;
        let policy = Policy::new(section.policies.clone(), section.dev);
        let broker = Broker::new(engine, policy, audit, section.max_body)?;
        broker.open_metrics(section.metrics);
        let listeners = listeners(section)?;
        let addresses = listeners.iter().filter_map(Listener::address).collect();
        let runtime = Builder::new_multi_thread()
            .thread_name("hsmux-broker")
            .enable_all()
            .build()
            .map_err(|e| {
                Error::pool(Kind::Environment, format!("no threads for the broker: {e}"))
            })?;
        let (end, ended) = watch::channel(false);
        let mut serving = JoinSet::new();
        for listener in listeners {
            let work = listener.serve(Arc::clone(&broker), ended.clone());
            let work = async {
                if let Err(error) = work.await {
                    tracing::error!(%error, "the broker does not listen");
                }
            };
            serving.spawn_on(work, runtime.handle());
        }
        runtime.spawn(look(Arc::clone(&broker), section.clone(), current));
        let service = Self {
            broker,
            addresses,
            end,
            serving: Some((runtime, serving)),
        };
        service.announce(section);
        Ok(service)
    }

    /// Where it listens, with the ports that the system has chosen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What requests share.
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

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.end.send(true);
        if let Some((runtime, mut serving)) = self.serving.take() {
            let drained = async { while serving.join_next().await.is_some() {} };
            let _ = runtime.block_on(async { tokio::time::timeout(DRAIN, drained).await });
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

fn listeners(section: &BrokerSection) -> Result<Vec<Listener>> {
    let tls = section.tls.as_ref().map(tls::config).transpose()?;
    let tcp = section.listen.iter();
    let mut listeners: Vec<_> = tcp
        .map(|address| Listener::tcp(*address, tls.clone()))
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

/// Takes over what commands and other programs have changed.
async fn look(
    broker: Arc<Broker>,
    mut section: BrokerSection,
    current: impl Fn() -> Option<BrokerSection> + Send + Sync,
) {
    let mut seen = None;
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(now) = current().filter(|now| now.policies != section.policies) {
            broker
                .policy
                .store(Arc::new(Policy::new(now.policies.clone(), section.dev)));
            section.policies = now.policies;
            tracing::info!("the broker has other policies");
        }
        let tokens = Arc::clone(&broker);
        let read = tokio::task::spawn_blocking(move || tokens.tokens.refresh()).await;
        if let Ok(Err(error)) = read {
            tracing::warn!(%error, "tokens of clients are as they were");
        }
        let now = broker.engine.pool().catalogue().epoch;
        if seen != Some(now) {
            seen = Some(now);
            broker.engine.adopt().await;
            broker.engine.refresh_external();
        }
    }
}
