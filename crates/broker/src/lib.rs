//! The broker: encrypt, decrypt and sign over HTTP, with keys that never leave the pool's tokens.
//!
//! It speaks the Transit dialect of OpenBao and Vault ([`transit`]), so that their clients work
//! unchanged. A request is one [`ApiCall`]: who it is ([`auth`]), what it may ([`policy`]), which managed
//! [`key`] it means, and what that is in operations of the pool ([`engine`]). Names and versions are
//! in the [`store`]; keys are in the tokens.

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
