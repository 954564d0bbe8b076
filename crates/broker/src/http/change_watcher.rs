//! Changes while the broker runs: by commands and other programs, in files that it names, and in the configuration.

use std::sync::Arc;
use std::time::Duration;

use hsmux_config::{BrokerSection, Config};
use hsmux_service::Daemon;
use hsmux_token::Result;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Broker;
use super::limits::UsageLimits;
use super::tls::Https;
use crate::engine::Engine;
use crate::policy::Policy;

/// Watches the configuration, the files and the tokens.
pub struct ChangeWatcher {
    broker: Arc<Broker>,
    daemon: Arc<Daemon>,
    https: Option<Arc<Https>>,
    /// As it was taken over last.
    config: Arc<Config>,
    section: BrokerSection,
    /// The pool's epoch at the last reconciliation.
    seen: watch::Sender<u64>,
}

/// How often.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The time after which failed removals are tried again without a change on the tokens.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

impl ChangeWatcher {
    /// `section` is that of the configuration which the broker was started with.
    pub fn new(
        broker: Arc<Broker>,
        daemon: Arc<Daemon>,
        https: Option<Arc<Https>>,
        section: BrokerSection,
    ) -> Self {
        Self {
            config: daemon.config(),
            daemon,
            seen: watch::Sender::new(broker.engine.pool().catalogue().epoch),
            broker,
            https,
            section,
        }
    }

    /// Applies changes, for ever. `changed` wakes it before its time.
    pub async fn run(mut self, mut changed: watch::Receiver<()>) {
        let engine = Arc::clone(&self.broker.engine);
        engine.refresh_external();
        tokio::spawn(adopt(engine, self.seen.subscribe()));
        loop {
            if let Ok(Err(_)) = timeout(POLL_INTERVAL, changed.changed()).await {
                return;
            }
            let now = self.daemon.config();
            if !Arc::ptr_eq(&now, &self.config) {
                self.take_over_all(now);
            }
            self.broker.sum_up(false);
            self.look_at_files().await;
            let broker = Arc::clone(&self.broker);
            // A server may take its time.
            tokio::spawn(async move { broker.trust.keep_fresh().await });
            self.look_at_keys();
        }
    }

    fn take_over_all(&mut self, now: Arc<Config>) {
        self.change_traces(&now);
        if let Some(section) = now.broker.clone() {
            self.take_over(section);
        }
        self.config = now;
    }

    fn change_traces(&self, now: &Config) {
        let others = now.traces != self.config.traces;
        // The collector's roots may be others under the same name.
        if !others && now.traces.iter().all(|traces| traces.ca.is_none()) {
            return;
        }
        match self.broker.traces.prepare(now.traces.as_ref()) {
            Ok(source) => self.broker.traces.change(source),
            Err(error) => tracing::error!(%error, "requests are traced as before"),
        }
    }

    fn take_over(&mut self, now: BrokerSection) {
        if now.policies != self.section.policies {
            let policy = Policy::new(now.policies.clone(), self.section.dev);
            self.broker.policy.store(Arc::new(policy));
            tracing::info!("the broker has other policies");
        }
        if now.limits != self.section.limits {
            self.broker
                .usage
                .store(Arc::new(UsageLimits::new(now.limits.clone())));
            tracing::info!("the broker has other limits");
        }
        self.broker.open_metrics(now.metrics);
        self.broker.access_log.change(now.access_log.as_ref());
        self.section = BrokerSection {
            dev: self.section.dev,
            ..now
        };
    }

    async fn look_at_files(&self) {
        let (broker, https) = (Arc::clone(&self.broker), self.https.clone());
        let (tls, jwt) = (self.section.tls.clone(), self.section.jwt.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let tokens = broker.tokens.refresh().map(|()| false);
            tell("tokens of clients", tokens);
            if let (Some(https), Some(tls)) = (https, tls) {
                tell("certificates", https.refresh(&tls));
            }
            tell(
                "keys of the JWTs' issuer",
                broker.trust.refresh(jwt.as_ref()),
            );
        });
        if let Err(error) = looked.await {
            tracing::error!(%error, "the broker has not looked for changes");
        }
    }

    fn look_at_keys(&self) {
        let engine = &self.broker.engine;
        let now = engine.pool().catalogue().epoch;
        let other = |seen: &mut u64| std::mem::replace(seen, now) != now;
        if self.seen.send_if_modified(other) {
            engine.refresh_external();
        }
    }
}

/// Reconciles the store and the tokens whenever one of them has changed. It is a task of its own, since it waits
/// while a key is made, which may take minutes.
async fn adopt(engine: Arc<Engine>, mut epoch: watch::Receiver<u64>) {
    loop {
        engine.adopt().await;
        if let Ok(Err(_)) = timeout(RETRY_INTERVAL, epoch.changed()).await {
            return;
        }
    }
}

fn tell(what: &str, taken_over: Result<bool>) {
    match taken_over {
        Ok(true) => tracing::info!("the broker has other {what}"),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "{what} are as they were"),
    }
}
