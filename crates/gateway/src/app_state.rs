//! State that all connections share.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use boring::ssl::SslContext;
use hsmux_config::GatewaySection;
use hsmux_edge::access_log::AccessLog;
use hsmux_pool::Pool;
use hsmux_service::Daemon;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use crate::activity::Activity;
use crate::client_chain::ClientChain;
use crate::file_budget::FileBudget;
use crate::memory::MemoryBudget;
use crate::metrics::{GaugeGuard, Metrics};
use crate::phase::{Phase, Phases};
use crate::reservation::ConnectionSlot;
use crate::signatures::Signatures;
use crate::sites::Sites;
use crate::source::SourceSlots;
use crate::ticket_keys::TicketKeys;
use crate::{http, plain};

/// State that all connections share.
pub struct AppState {
    pub section: GatewaySection,
    pub pool: Arc<Pool>,
    pub daemon: Arc<Daemon>,
    pub metrics: Arc<Metrics>,
    pub access_log: Arc<AccessLog>,
    pub signatures: Arc<Signatures>,
    pub sites: Arc<ArcSwap<Sites>>,
    /// Notified when sites were read again from a changed configuration or changed files, and when a list of revoked
    /// certificates has expired.
    pub changes: watch::Sender<()>,
    pub front: SslContext,
    /// The first port that listens for TLS.
    pub port: u16,
    /// Ticket keys that other hosts share.
    pub tickets: Option<TicketKeys>,
    /// Errors of ACME's challenges that were logged.
    pub challenge_errors: plain::ReportedErrors,
    /// Slots for connections, and for those whose handshake is under way.
    pub connections: Arc<Semaphore>,
    pub handshakes: Arc<Semaphore>,
    /// Slots for connections that wait until another one has ended.
    pub waiting: Arc<Semaphore>,
    /// Limits per source.
    pub source_connections: Arc<SourceSlots>,
    pub source_handshakes: Arc<SourceSlots>,
    /// Files that connections and backends may open.
    pub files: FileBudget,
    /// Memory that connections may hold.
    pub memory: Arc<MemoryBudget>,
    /// Cache of short files from the sites' folders.
    pub file_cache: Arc<http::FileCache>,
    /// Blocking work on those folders.
    pub reads: http::BlockingReads,
    /// Phase of the gateway's shutdown.
    pub phases: Phases,
    /// Another process has the sockets.
    pub handed_over: AtomicBool,
}

/// Held by a connection until it has ended, also as a tunnel.
pub struct ConnectionGuard {
    _counted: GaugeGuard,
    _slot: ConnectionSlot,
    pub activity: Arc<Activity>,
    /// The client's certificates. Unset until the handshake has ended.
    pub client_chain: OnceLock<ClientChain>,
}

impl ConnectionGuard {
    pub fn new(counted: GaugeGuard, slot: ConnectionSlot, activity: Arc<Activity>) -> Self {
        Self {
            _counted: counted,
            _slot: slot,
            activity,
            client_chain: OnceLock::new(),
        }
    }

    /// Returns once the site no longer accepts the client.
    pub async fn until_refused(&self, app: &AppState) {
        match self.client_chain.get() {
            Some(client_chain) => client_chain.until_refused(app).await,
            None => pending().await,
        }
    }
}

/// A request may be on its way when draining begins. hyper would close an idle connection at once.
const END_DELAY: Duration = Duration::from_millis(500);

impl AppState {
    /// Whether another process accepts the clients: then balancers are to notice nothing.
    pub fn is_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Returns when connections have to end. Requests under way are still answered.
    pub async fn connections_end(&self) {
        self.phases.reach(Phase::Draining).await;
        sleep(END_DELAY).await;
    }
}
