//! The service: requests in, the dialect's answers out.
//!
//! | file | one idea |
//! |---|---|
//! | `app` | every path, once |
//! | `call` | a request: who it is, what it may |
//! | `body` | its body, as long and as slow as it may be |
//! | `record` | what becomes of it: counted, and on the audit trail |
//! | `reply` | the dialect's envelope and its errors |
//! | `health` | whether it lives and serves |
//! | `identify` | who a request is of |
//! | `limits` | what one client may cost |
//! | `denials` | what is denied, summed up |
//! | `service` | start and end |
//! | `watch` | what changes while it runs |
//! | `listen`, `tls` | sockets |
//! | `connection`, `connections`, `patience` | one connection; how many there may be; how long it is waited for |
//! | `sent` | an answer on its way |
//! | `unread` | a body that nobody has read |

mod app;
mod body;
mod call;
mod connection;
mod connections;
mod denials;
mod health;
mod identify;
mod limits;
mod listen;
mod patience;
mod record;
mod reply;
mod sent;
mod service;
mod tls;
mod unread;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use hsmux_audit::Trail;
use hsmux_config::Limits;
use hsmux_token::Result;
use hsmux_traces::Traces;

use crate::auth::{Tokens, Trust};
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::policy::Policy;

use denials::Denials;

pub use app::app;
pub use call::{Call, Peer};
pub use limits::{Admitted, Usage};
pub use record::Used;
pub(crate) use reply::text;
pub use service::Service;

/// What all requests share.
pub struct Broker {
    pub(crate) engine: Arc<Engine>,
    pub(crate) tokens: Tokens,
    pub(crate) policy: ArcSwap<Policy>,
    pub(crate) audit: Arc<Trail>,
    pub(crate) metrics: Metrics,
    /// Whether everybody may read them.
    pub(crate) open_metrics: AtomicBool,
    pub(crate) usage: ArcSwap<Usage>,
    pub(crate) denials: Denials,
    pub(crate) trust: Arc<Trust>,
    pub(crate) traces: Arc<Traces>,
}

impl Broker {
    /// The broker over an engine.
    pub fn new(
        engine: Arc<Engine>,
        policy: Policy,
        audit: Arc<Trail>,
        limits: Limits,
        traces: Arc<Traces>,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            tokens: Tokens::new(Arc::clone(engine.store()))?,
            policy: ArcSwap::from_pointee(policy),
            metrics: Metrics::new()?,
            open_metrics: AtomicBool::new(false),
            engine,
            audit,
            usage: ArcSwap::from_pointee(Usage::new(limits)),
            denials: Denials::default(),
            trust: Arc::default(),
            traces,
        }))
    }

    /// Whether `/metrics` is for everybody, or for those alone who are on this machine's socket or are
    /// allowed to read it.
    pub fn open_metrics(&self, open: bool) {
        self.open_metrics.store(open, Ordering::Relaxed);
    }

    /// What was denied again and again is put on the trail: of those whose time is over, or at the end of all.
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
