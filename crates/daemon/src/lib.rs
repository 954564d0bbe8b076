//! The daemon: a pool behind sockets.
//!
//! [`Daemon`] reads the configuration, starts the pool and listens. Each listener is a
//! [service](service) with [settings](settings) of its own; each program behind it an
//! [application](application) with its login and its session objects; each of its requests is
//! looked at once ([rights](rights)) and handed to the pool ([execute](execute)). Administration has
//! a socket of its own ([admin]). What faces the network is a [process of its own](services).

pub mod admin;
mod application;
mod application_connection;
mod audit;
mod broker_keys;
mod changes;
mod child;
mod client;
mod daemon;
mod dkek;
pub mod doctor;
mod execute;
mod hand_over;
mod hot_plug;
mod lock;
mod login;
mod members;
pub mod members_file;
mod notify;
mod open_listeners;
mod operation_record;
mod outstanding_calls;
mod parked;
mod peers;
mod readings;
mod refusals;
mod rights;
mod service;
mod services;
mod session_objects;
mod settings;
mod throttle;
mod view;

pub use client::PoolClient;
pub use daemon::{ControlEvent, Daemon, Running};
pub use lock::StateLock;
pub use peers::{HostRefusal, PeerStatus, Peers};
pub use services::{ServiceName, ServiceProgram, ServiceState, ServiceStatus, Services};

/// Ends this process as a success, without exit handlers. One of them frees libpcsclite's list of contexts (1.9.9), which
/// threads that administer cards may still use.
pub fn leave() -> ! {
    signal_hook::low_level::exit(0)
}
