//! Frames between processes: a module and its daemon, a daemon and its workers, a host and another.

mod message;

pub use message::*;
