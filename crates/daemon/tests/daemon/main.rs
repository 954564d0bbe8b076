//! The daemon over real sockets, with a token in memory behind it.

mod administration;
mod applications;
mod hosts;
mod rig;
mod trail;
