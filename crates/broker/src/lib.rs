//! The broker: encrypt, decrypt and sign over HTTP, with keys that never leave the pool's tokens.
//!
//! It speaks the Transit dialect of OpenBao and Vault ([`transit`]); their clients work unchanged. A request is one
//! [`ApiCall`]. [`auth`] identifies the client, [`policy`] gives its rights, [`key`] has the managed keys, and
//! [`engine`] translates to operations of the pool. The [`store`] has names and versions; the tokens have the keys.

mod audited_change;
pub mod auth;
pub mod engine;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod key;
pub mod metrics;
pub mod openapi;
pub mod policy;
mod random;
pub mod refusal;
pub mod store;
pub mod traces;
pub mod transit;

pub use http::{ApiCall, Broker, BrokerService, app};
