//! The service: requests in, the dialect's answers out.
//!
//! | file | one idea |
//! |---|---|
//! | `app` | every path, once |
//! | `call` | a request: who it is, what it may, what becomes of it |
//! | `reply` | the dialect's envelope and its errors |
//! | `health` | whether it lives and serves |
//! | `service` | start, reload, end |
//! | `listen`, `tls` | sockets |

mod app;
mod call;
mod health;
mod listen;
mod reply;
mod service;
mod tls;

use std::sync::Arc;

use arc_swap::ArcSwap;
use hsmux_audit::Trail;
use hsmux_token::Result;

use crate::auth::Tokens;
use crate::engine::Engine;
use crate::policy::Policy;

pub use app::app;
pub use call::{Call, Peer};
pub use service::Service;

/// What all requests share.
pub struct Broker {
    pub(crate) engine: Arc<Engine>,
    pub(crate) tokens: Tokens,
    pub(crate) policy: ArcSwap<Policy>,
    pub(crate) audit: Arc<Trail>,
    pub(crate) max_body: usize,
}

impl Broker {
    /// The broker over an engine. `max_body` is in bytes.
    pub fn new(
        engine: Arc<Engine>,
        policy: Policy,
        audit: Arc<Trail>,
        max_body: usize,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            tokens: Tokens::new(Arc::clone(engine.store()))?,
            policy: ArcSwap::from_pointee(policy),
            engine,
            audit,
            max_body,
        }))
    }

    /// The keys.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
