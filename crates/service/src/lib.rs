//! The frame of a service: a process beside the daemon, which the daemon starts.
//!
//! A service reaches its [`Daemon`] by its standard input. The daemon sends the configuration and takes connections.

mod daemon;
mod direct;
mod driver;
mod estimates;
mod member;
mod recorder;
mod run;

pub use daemon::{Daemon, DaemonEvent};
pub use driver::drive;
pub use estimates::Estimates;
pub use member::pool;
pub use recorder::LinkRecorder;
pub use run::{ServiceProcess, run};
