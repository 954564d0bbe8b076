//! The frame of a service: a process beside the daemon, which the daemon starts.
//!
//! A service reaches its [`Daemon`] by its standard input. The daemon sends the configuration and takes connections.

mod connector;
mod daemon;
mod daemon_pool;
mod direct;
mod driver;
mod estimates;
mod readings;
mod recorder;
mod run;
mod sockets;

pub use daemon::{Daemon, DaemonEvent};
pub use daemon_pool::{DaemonPool, Queueing, Submitted, pool, request_number};
pub use driver::drive;
pub use estimates::Estimates;
pub use hsmux_wire::ServiceLink;
pub use readings::{Readings, SpanReadings};
pub use recorder::LinkRecorder;
pub use run::{EndedBy, ServiceProcess, run};
