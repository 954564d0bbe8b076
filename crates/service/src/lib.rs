//! What every service is: a process beside the daemon, which the daemon starts, and which asks the daemon's pool for all
//! that it wants of keys.
//!
//! A service has a [`Daemon`] at the other end of its standard input, which tells it what is in force and takes
//! connections of it. Over such connections the daemon's pool is a token like any other, and [`pool`] a pool of that one
//! member: so what queues, cancels and estimates waiting times in the daemon does it in a service, too.

mod daemon;
mod member;
mod run;

pub use daemon::{Daemon, News};
pub use member::pool;
pub use run::{Service, run};
