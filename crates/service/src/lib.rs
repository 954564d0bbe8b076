//! What every service is: a process beside the daemon, which the daemon starts.
//!
//! A service has a [`Daemon`] at the other end of its standard input, which tells it what is in force and takes
//! connections of it.

mod daemon;

pub use daemon::{Daemon, News};
