//! What every service is: a process beside the daemon, which the daemon starts.
//!
//! A service has a [`Daemon`] at the other end of its standard input, which tells it what is in force and takes
//! connections of it.

mod daemon;
mod driver;
mod estimates;
mod member;
mod run;

pub use daemon::{Daemon, News};
pub use driver::drive;
pub use estimates::Estimates;
pub use member::pool;
pub use run::{Service, run};
