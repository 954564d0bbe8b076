//! Many tokens as one: catalogue, leases, policies, health, queueing, configuration.

pub mod config;
mod connector;
pub mod process;
pub mod replicate;

pub use connector::Connector;
