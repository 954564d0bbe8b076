//! The frame of a service: a process beside the daemon, which the daemon starts.
//!
//! A service reaches its [`Daemon`] by its standard input. The daemon sends the configuration and takes connections.

mod daemon;
mod direct;
mod driver;
mod estimates;
mod member;
mod readings;
mod recorder;
mod run;

pub use daemon::{Daemon, DaemonEvent};
pub use driver::drive;
pub use estimates::Estimates;
pub use member::{DaemonPool, Queueing, Submitted, pool, request_number};
pub use readings::{Readings, SpanReadings};
pub use recorder::LinkRecorder;
pub use run::{ServiceProcess, run};
