//! Tokens of other hosts.
//!
//! A host offers its tokens to others over mutual TLS ([`serve`]). A pool on any host has them as members, each
//! behind a worker process ([`link_main`]), which passes frames between its lanes and the other host. TLS never runs
//! in the process that has the pool of the using host. A small authority in a folder issues certificates ([`ca`]).
//!
//! | file | one idea |
//! |---|---|
//! | `service` | start and end of the serving side, a process of its own |
//! | `server` | a connection from its first byte until it is served |
//! | `pending_connections` | connections that nobody knows yet |
//! | `peer_connections` | connections that are open, and who has to go |
//! | `watcher` | files and configuration that change while it runs |
//! | `link`, `connect` | the using side: a worker process, its lanes, how it connects |
//! | `heartbeat` | whether the other host is alive, and to be believed |
//! | `identity`, `certificate` | what a host shows, and what others show |
//! | `stream` | sockets that notice a cut cable, frames on them |
//! | `revocation` | lists of revoked certificates, from host to host |
//! | `signature` | whether something is signed by a key |
//! | `connect_failure` | what went wrong in a handshake, and what to do |
//! | `ca` | the authority: certificates, their list, revocation |

pub mod ca;
mod certificate;
mod connect;
mod connect_failure;
mod heartbeat;
mod identity;
mod link;
mod peer_connections;
mod pending_connections;
mod revocation;
mod server;
mod service;
mod signature;
mod stream;
mod watcher;

pub use link::link_main;
pub use service::serve;
