//! Workers: a process for each seat of a pool that loads a vendor's module, or the module in this process.
//!
//! A worker is this program started again as `hsmux worker`. It takes its orders over its standard
//! input, a socket: the lanes as descriptors, then the greeting, then what to load. Operations travel
//! over the lanes, one thread and one operation on each; the control socket only says that the
//! parent lives. When it ends the worker ends too, whatever the vendor's module is doing; when the
//! worker dies, its lanes and a pidfd tell the parent.
//!
//! A token of another host has such a process, too, started as `hsmux link` ([`LinkOptions`]): it passes what
//! comes on the lanes on to that host.

mod child;
mod connector;
mod direct;
mod environment;
mod handover;
mod orders;
mod sandbox;
mod seats;
mod secrets;
mod start;
mod turns;
mod worker;

pub use connector::{DEPTH_OF_LINKS, ProcessConnector, ThreadConnector};
pub use environment::Environment;
pub use orders::LinkOptions;
pub use sandbox::{LandlockSupport, Profile, Sandbox};
pub use seats::{
    environment, environment_with, open_options, seats, seats_of, seats_to_add, worker_seats,
};
pub use secrets::{allow_locked_memory, keep_secrets, lock_memory, take_stdin};
pub use worker::{Orders, serve_orders, worker_main};
