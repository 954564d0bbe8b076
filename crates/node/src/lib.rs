//! Tokens of other hosts.
//!
//! A host offers its tokens to others over mutual TLS ([`NodeService`]). A pool on any host has them as members, each
//! behind a worker process ([`link_main`]), which passes frames between its lanes and the other host. TLS never runs
//! in the process that has the pool of the using host. A small authority in a folder issues certificates ([`ca`]).
//!
//! | file | one idea |
//! |---|---|
//! | `service` | start and end of the serving side, a process of its own |
//! | `server` | a connection from its first byte until it is served |
//! | `pending_connections` | connections before authentication |
//! | `peer_connections` | open connections, and their end |
//! | `watcher` | files and configuration that change while it runs |
//! | `link`, `connect` | the using side: a worker process, its lanes, how it connects |
//! | `heartbeat` | heartbeat of the other host, and trust in it |
//! | `identity`, `certificate` | this host's certificate, and those of others |
//! | `stream` | sockets that detect a cut cable, and frames on them |
//! | `revocation` | exchange of revocation lists between hosts |
//! | `signature` | verification of signatures |
//! | `connect_failure` | failures of handshakes, with advice |
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
pub use service::NodeService;
