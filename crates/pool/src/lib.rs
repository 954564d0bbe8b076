//! Many tokens as one: catalogue, leases, policies, health, queueing.
//!
//! A [`Pool`] is a [`hsmux_token::Token`] over any number of [`Seat`]s. A request gets a lane of a seat that holds its
//! key, or waits in the one queue. No lane is free while a request waits that it could serve. If a token fails, its
//! requests move to other replicas of their keys.

mod alarm;
mod amendments;
mod catalogue;
mod changes;
mod claim;
mod client_session;
mod clock;
mod connect;
mod connector;
mod core;
mod direct;
mod dispatch;
mod failover;
mod inability;
mod inline;
mod job;
mod keeper;
mod life;
mod mechanisms;
mod member;
mod need;
mod object_sync;
mod options;
mod owner;
mod panics;
mod pool;
mod proof;
mod record;
mod registry;
mod request_timing;
mod scheduler;
mod seatset;
mod session_keys;
#[cfg(test)]
mod simulation;
mod slots;
mod status;
mod tracked_token;
mod traffic;
mod watcher;

pub use catalogue::{
    BROKER_MARK, BROKER_ROLE, Catalogue, Entries, Entry, HIDDEN_LABEL, Replica, ReplicaState,
    has_broker_mark, is_broker_key,
};
pub use changes::Changes;
pub use claim::Claim;
pub use client_session::{ClientConnection, ClientSession};
pub use connector::{Care, Connector, Seat};
pub use hsmux_config::Policy;
pub use member::PoolMember;
pub use options::Options;
pub use owner::Owner;
pub use panics::one_round;
pub use pool::Pool;
pub use request_timing::{RequestTiming, SeatRun};
pub use scheduler::{DEEPEST, Spread};
pub use status::{
    DebtStatus, ObjectStatus, PoolStatus, ReplicaStatus, SeatState, SeatStatus, TokenStatus,
};
pub use traffic::{SeatTraffic, Traffic};

// Tests of this crate's own use the fake tokens of the tests from outside, which know it by its name.
#[cfg(test)]
extern crate self as hsmux_pool;
#[cfg(test)]
#[path = "../tests/pool/vault.rs"]
#[allow(dead_code, reason = "most of it is for the tests from outside")]
mod vault;
