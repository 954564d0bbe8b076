//! Hosts that use each other's tokens: several daemons on one machine, with a cable between them.

mod authority;
mod broker;
mod cable;
mod crowd;
mod gateway;
mod grown;
mod lost;
mod pair;
mod process;
mod refused;
mod revoked;
mod serving;
mod spread;
mod tls;
mod trio;
