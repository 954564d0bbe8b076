//! The service: requests in, the dialect's answers out.
//!
//! | file | one idea |
//! |---|---|
//! | `access` | what the access log has of a request |
//! | `app` | all paths |
//! | `call` | a request: its client and its rights |
//! | `body` | the body of a request, with its limits |
//! | `record` | metrics and audit trail of a request |
//! | `reply` | the dialect's envelope and its errors |
//! | `health` | liveness and readiness |
//! | `identify` | the client of a request |
//! | `limits` | quotas of one client |
//! | `denials` | counts of denials |
//! | `service` | start and end |
//! | `change_watcher` | changes while it runs |
//! | `listen`, `tls` | sockets |
//! | `connection`, `connections`, `timeout_stream` | one connection; all connections; time-outs |
//! | `answer_body` | an answer until the client has taken it |
//! | `unread_body` | an unread body at the end of its request |

mod access;
mod answer_body;
mod app;
mod body;
mod call;
mod change_watcher;
mod connection;
mod connections;
mod denials;
mod health;
mod identify;
mod limits;
mod listen;
mod record;
mod reply;
mod service;
mod timeout_stream;
mod tls;
mod unread_body;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hsmux_audit::Recorder;
use hsmux_config::Limits;
use hsmux_edge::access_log::AccessLog;
use hsmux_service::Readings;
use hsmux_token::Result;
use hsmux_traces::Traces;
use parking_lot::Mutex;

use crate::auth::{ClientTokens, IssuerTrust};
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::policy::Policy;

use denials::Denials;

pub use app::app;
pub use call::{ApiCall, Peer, PeerTls};
pub use limits::{AdmittedRequest, UsageLimits};
pub use record::UseDetails;
pub(crate) use reply::text;
pub use service::BrokerService;

/// The state that all requests share.
pub struct Broker {
    pub(crate) engine: Arc<Engine>,
    pub(crate) tokens: ClientTokens,
    pub(crate) policy: ArcSwap<Policy>,
    pub(crate) audit: Arc<dyn Recorder>,
    pub(crate) metrics: Metrics,
    /// True if everybody may read the metrics.
    pub(crate) open_metrics: AtomicBool,
    pub(crate) usage: ArcSwap<UsageLimits>,
    pub(crate) denials: Denials,
    pub(crate) trust: Arc<IssuerTrust>,
    pub(crate) traces: Arc<Traces>,
    pub(crate) access_log: Arc<AccessLog>,
    pub(crate) readings: ReadDaemon,
    /// Whether a member serves, and when that was read.
    served: Mutex<Option<(Instant, bool)>>,
    /// Held by the thread that reads it. The others take the last value.
    reading: Mutex<()>,
}

/// Reads what the daemon does now. Blocks.
pub type ReadDaemon = Arc<dyn Fn() -> Result<Readings> + Send + Sync>;

/// Load balancers and strangers may ask for readiness often: the daemon is asked no more often than this.
const SERVED_FOR: Duration = Duration::from_millis(100);

impl Broker {
    /// The broker over an engine.
    pub fn new(
        engine: Arc<Engine>,
        policy: Policy,
        audit: Arc<dyn Recorder>,
        limits: Limits,
        traces: Arc<Traces>,
        readings: ReadDaemon,
    ) -> Result<Arc<Self>> {
        let metrics = Metrics::new()?;
        Ok(Arc::new(Self {
            tokens: ClientTokens::new(Arc::clone(engine.store()))?,
            policy: ArcSwap::from_pointee(policy),
            access_log: AccessLog::new("broker", metrics.count_lost_lines()),
            metrics,
            open_metrics: AtomicBool::new(false),
            engine,
            audit,
            usage: ArcSwap::from_pointee(UsageLimits::new(limits)),
            denials: Denials::default(),
            trust: Arc::default(),
            traces,
            readings,
            served: Mutex::default(),
            reading: Mutex::default(),
        }))
    }

    /// True if a member of the pool serves.
    async fn is_served(self: &Arc<Self>) -> bool {
        let last = *self.served.lock();
        if let Some((at, is_served)) = last
            && (at.elapsed() < SERVED_FOR || self.reading.is_locked())
        {
            return is_served;
        }
        let broker = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let _turn = broker.reading.lock();
            let is_served = (broker.readings)().is_ok_and(|daemon| daemon.is_served);
            *broker.served.lock() = Some((Instant::now(), is_served));
            is_served
        });
        read.await.unwrap_or(false)
    }

    /// Opens `/metrics` to everybody, or restricts it to this machine's socket and to clients with that right.
    pub fn open_metrics(&self, open: bool) {
        self.open_metrics.store(open, Ordering::Relaxed);
    }

    /// Writes counts of repeated denials to the trail: those whose minute is over, or all at the end.
    fn sum_up(&self, end: bool) {
        for line in self.denials.lines(end) {
            self.audit.record(line);
        }
    }

    /// The keys.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
