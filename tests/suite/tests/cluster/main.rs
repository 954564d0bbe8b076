//! `make cluster`: three hosts on this machine, haproxy in front.

mod clients;
mod hosts;
mod rig;
mod table;
mod wordpress;
